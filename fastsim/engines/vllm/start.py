"""What vLLM refuses at its start: its scheduler's rules hold for such settings, too, but no server ever runs with them.

From `SchedulerConfig.verify_max_model_len` (vllm/config/scheduler.py), whose words are quoted. Engines other than
vLLM's ask for none of this, and neither do recorded cases, which set vLLM's scheduler up behind its validation.
"""

from fastsim.rule import Rule

START_RULES = (
    Rule(
        ("engine.name", "engine.max_num_batched_tokens", "engine.max_num_seqs"),
        lambda name, tokens, seqs: not name.startswith("vllm-0") or tokens >= seqs,
        "engine.max_num_batched_tokens = {1}, but at least engine.max_num_seqs = {2} was expected: vLLM does not start "
        '("max_num_batched_tokens ({1}) must be greater than or equal to max_num_seqs ({2})."; where no --max-num-seqs '
        "is given it lowers its default)",
    ),
    Rule(
        ("engine.name", "engine.max_num_active_seqs", "engine.max_num_seqs"),
        lambda name, active, seqs: not name.startswith("vllm-0") or active is None or active <= seqs,
        "engine.max_num_active_seqs = {1}, but at most engine.max_num_seqs = {2} was expected: vLLM does not start, "
        "because it admits no more than its runner has slots for",
    ),
    Rule(
        ("engine.name", "engine.long_prefill_token_threshold", "engine.max_model_len"),
        # Before partial prefills were dropped, vLLM looked at it only where several were allowed: 0.16.0 starts
        lambda name, threshold, length: not name.startswith("vllm-0.33") or threshold <= length,
        "engine.long_prefill_token_threshold = {1}, but at most engine.max_model_len = {2} was expected: vLLM does not "
        'start ("long_prefill_token_threshold ({1}) cannot be greater than the max_model_len ({2}).")',
    ),
)
