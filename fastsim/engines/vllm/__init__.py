"""The vLLM engines: `vllm-0.33.0`, `vllm-0.16.0` (synchronous) and `vllm-0.33.0-async`, decision for decision.

Their rules, and the kernel that does each, stand in RULES.md. To read them in code: `schedule.schedule_step`, then
`admission.waiting_loop`, `preemption.preempt_request` and `update.update_from_output`, and around them `loop.run` or
`batch_queue.run_async`. `memory.State` is what they hand to each other; `state` and `scalars` say what is in it.
"""
