"""No further prefill starts in a step that already has BUDGET prefill tokens (vLLM pull request 33743).

A GPU that one prefill saturates gains nothing from a second in the same step, which only delays the first.
"""

BUDGET = 2048


def admit(view, request):
    return view.step_prefill_tokens < BUDGET
