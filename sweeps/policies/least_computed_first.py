"""The running request that has computed least is preempted (proposed for vLLM in issue 54644, pull request 53723).

A preemption throws computed tokens away, so the least of them are lost. Ties: the first in running
order, as `min` has it.
"""

victim_ties = "first"


def victim_key(view, request):
    return -request.computed_tokens
