"""A policy file told to its author: what it reads, what that means, and whether it is what it seems."""

from fastsim.engines.policy_report import Function, PolicyReport
from fastsim.engines.vllm.codes import Reads
from fastsim.engines.vllm.policy_file.records import queue_moves, reads_of
from fastsim.engines.vllm.policy_text.fields import FIELDS, QUEUE, SIGNATURES, VICTIM
from fastsim.engines.vllm.policy_text.source import PolicySource, load_policy

STATES, CASES = 10_000, 60
"""Made-up states on which compiled functions and plain Python must agree; random cases on which jumps and stepping."""
JUMPS = {
    Reads.STEADY: "all stay: no jump changes the answer",
    Reads.ARRIVALS: "end at arrivals",
    Reads.STEPS: "go on, but it is asked for each of their steps, and they end at arrivals",
    Reads.HITS: "none while it refuses: prefix hits shrink as blocks are taken; without prefix caching as elsewhere",
}


def policy_report(path: str, *, quick: bool) -> PolicyReport:
    """What is to be said of a file; `quick`: only what it reads.

    Raises
    ------
    InputError
        When it is no policy.
    """
    source = load_policy(path)
    functions = tuple(_function(source, hook) for hook in source.reads)
    fields = tuple(
        (f"{owner}.{name}", f"{field.what} ({', '.join(field.hooks)})")
        for owner, named in FIELDS.items()
        for name, field in named.items()
    )
    report = PolicyReport(source.name, source.digest, functions, fields)
    return report if quick else _tried(path, source, report)


def _function(source: PolicySource, hook: str) -> Function:
    reads = tuple(
        f"{owner}.{name}"
        for owner, names in zip(FIELDS, source.reads[hook], strict=True)
        for name in FIELDS[owner]
        if name in names
    )
    return Function(hook, source.lines[hook], SIGNATURES[hook].what, reads, _jumps(source, hook))


def _jumps(source: PolicySource, hook: str) -> str:
    if hook == VICTIM:
        return "all stay: it is asked only in steps that run short of blocks"
    if hook != QUEUE:
        return JUMPS[reads_of(source, hook, caching=True)]
    if source.queue_changes:
        return "keys are computed anew at every scan: none while two wait and the first of them cannot start"
    return (
        "end at arrivals, as the key depends on the moment"
        if queue_moves(source)
        else "all stay: the key follows from the request"
    )


def _tried(path: str, source: PolicySource, report: PolicyReport) -> PolicyReport:
    from fastsim.engines.vllm.policy_file import modes, trial  # compile

    facts = {"states": STATES, "cases": CASES}
    for hook in source.reads:
        if found := trial.first_difference(source, hook, STATES):
            return PolicyReport(**vars(report) | facts | {"fault": f"{source.where(hook)}: {found}"})
    if found := modes.first_difference(path, set(source.reads), CASES):
        return PolicyReport(**vars(report) | facts | {"fault": f"{source.name}: {found}"})
    return PolicyReport(**vars(report) | facts | {"cost": modes.cost_of(path)})
