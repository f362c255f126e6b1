"""The staged scheduler of vllm-rlt: looped transformers, bypass-bounded priority admission, swap preemption.

A step of the engine runs one stage: PREFILL, PRELUDE (embedding), RECURRENT (one loop over the layers) or CODA (head
and sampling). Rules as in the public vllm-rlt scheduler, before and after its change of the admission accounting
(`count_restores`, `blocked_checks_limit`); RULES.md has them, each with the kernel that does it. Read `schedule.py`
first, then `admission.py` and `swap.py`.

Not covered: the mixed mode, asynchronous outputs, prefill/decode disaggregation, preemption of waiting requests that
hold KV (`waiting_only`), token gates (an exit-depth trace replaces them).
"""
