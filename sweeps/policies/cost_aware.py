"""Blocks won for each token to be computed again, less as the output nears its limit (vLLM pull request 56897).

score = exclusive blocks / tokens x (1 - generated tokens / declared limit)
"""


def victim_key(view, request):
    left = 1 - request.generated_tokens / max(1, request.max_tokens)
    return request.exclusive_blocks / max(1, request.tokens) * left
