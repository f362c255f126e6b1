"""TensorRT-LLM's capacity and micro-batch schedulers, from their published rules; no recording has verified them.

Read `knobs.py` for its keys, `RULES.md` for the rules and the kernels that do them, then `kernel.py`. Not there: block
reuse, pipeline parallelism, the overlap of scheduling with the step, draft tokens, beams, LoRA, priorities.
"""
