"""vLLM 0.33.0 with several KV cache groups, groups that forget, or speculative decoding.

The scheduler is that of `fastsim.engines.vllm`; what differs is the block side (a table in every group, one pool) and
the step, which may deliver more than one token. Configurations with one full-attention group and no drafts never come
here. RULES.md has what differs.
"""
