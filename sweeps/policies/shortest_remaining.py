"""Whoever has least left of its declared output limit goes first, and whoever has most left is preempted first.

Remaining work as a scheduler can know it: the limit that the client declared, not the length that it will get.
"""


def remaining(request):
    return request.max_tokens - request.generated_tokens


def queue_key(view, request):
    return remaining(request) + request.prompt_tokens


def victim_key(view, request):
    return remaining(request)
