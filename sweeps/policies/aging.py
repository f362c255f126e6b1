"""Shortest prompt first, but a second of waiting makes up for TOKENS_PER_S tokens of prompt: nobody starves.

Everybody ages at the same pace, so the order of two requests never turns round and the key may stay as it is.
"""

TOKENS_PER_S = 1000


def queue_key(view, request):
    return request.prompt_tokens + TOKENS_PER_S * request.waiting_since_us / 1e6
