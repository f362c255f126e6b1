"""A policy's compiled functions beside plain Python, on made-up states."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from fastsim._jit import entry
from fastsim.engines.vllm.policy_file.decisions import given, module_of
from fastsim.engines.vllm.policy_text.fields import ADMIT, CAP, REQUEST, SIGNATURES, VIEW
from fastsim.engines.vllm.policy_text.source import PolicySource, made_up_states
from fastsim.errors import PolicyError

_HEAD = '''"""Evaluation of {name}, line {line}, {hook} ({digest}), made by fastsim."""

from typing import NamedTuple

import numpy as np

from fastsim.engines.vllm.policy_text.checked import finite
'''
_BODY = """

def evaluate(states, answers, at):
    for k in range(at[0], states.shape[0]):
        at[0] = k
        answers[k] = finite({call}, {where!r})
    at[0] = states.shape[0]
"""


def first_difference(source: PolicySource, hook: str, count: int) -> str | None:
    """Call a hook compiled and in plain Python on so many states: the first on which they differ, or None.

    Where one of them fails, both must.
    """
    states = list(made_up_states(1, hook, count))
    table = np.array([[*view.values(), *request.values()] for view, request in states], np.int64)
    compiled = _compiled(source, hook)
    plain = source.functions()[hook]
    answers = np.full(count, np.nan)
    at = np.zeros(1, np.int64)
    failed = np.zeros(count, np.bool_)
    while at[0] < count:
        try:
            compiled(table, answers, at)
        except PolicyError:
            failed[at[0]] = True
            at[0] += 1
    for k, (view, request) in enumerate(states):
        arguments = [SimpleNamespace(**view), SimpleNamespace(**request)][: len(SIGNATURES[hook].parameters)]
        try:
            answer: Any = plain(*arguments)
            expected = float(bool(answer) if hook == ADMIT else answer)
        except (PolicyError, ValueError, OverflowError):
            expected = np.nan
        if np.isfinite(expected) == failed[k] or (not failed[k] and expected != answers[k]):
            got = "fails" if failed[k] else f"is {float(answers[k])}"
            return f"compiled it {got}, in Python {expected}, with {view | ({} if hook == CAP else request)}"
    return None


def _compiled(source: PolicySource, hook: str) -> Any:
    """The hook over rows of a table: the fields of view and request in the order of `fields`."""
    names = [*(("view", name) for name in VIEW), *(("request", name) for name in REQUEST)]
    columns: dict[str, dict[str, str]] = {"view": {}, "request": {}}
    for place, (owner, name) in enumerate(names):
        columns[owner][name] = f"states[k, {place}]"
    classes, made = given(source, hook, columns["view"], columns["request"])
    arguments = ", ".join(made[name] for name in SIGNATURES[hook].parameters)
    call = f"{hook}({arguments})"
    head = _HEAD.format(name=source.name, line=source.lines[hook], hook=hook, digest=source.digest)
    body = _BODY.format(call=f"(1.0 if {call} else 0.0)" if hook == ADMIT else call, where=source.where(hook))
    return entry(module_of(source, head + classes + body).evaluate)
