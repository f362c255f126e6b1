"""SGLang 0.5.23's scheduler: prefill first, admission that counts the future, retraction, a radix cache.

One full-attention model on one GPU. Read `schedule.py` first, then `admission.py` and `decode.py`; `kernel.py` is the
loop around them, with and without overlap. RULES.md has the rules, as measured on the real scheduler.

Not covered: speculative decoding, LoRA, multimodal input, grammars, beams, sessions, hierarchical caches,
disaggregation, data-parallel attention; policies `dfs-weight`, `hrrn`, `shortest-prefill-first`, `random`,
`routing-key`; eviction other than lru; a bound on the queue; timeouts; closed loops.
"""
