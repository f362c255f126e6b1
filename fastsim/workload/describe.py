"""What a workload looks like: span, rate over time, burstiness, lengths, shared prefixes."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.workload.workload import Workload

PERCENTILES = (1, 10, 50, 90, 99)


def describe(workload: Workload, bins: int = 24) -> dict[str, Any]:
    """Figures of a workload, ready for JSON.

    Parameters
    ----------
    workload
        The requests.
    bins
        In how many equal parts of the span the rate is given.

    Returns
    -------
    dict
        `num_requests`, `span_s`, `rate_per_s` (gaps over span), `gap_cv` (coefficient of variation of the gaps, 1 for
        a Poisson process), `rate_over_time_per_s` (list of `bins`), `prompt_tokens` and `output_tokens` (mean, least,
        percentiles, greatest, total), `prefix` (groups, requests in one, `token_share` of all prompt tokens,
        `repeated_token_share`: those an unlimited cache would hold when the request comes), `priorities`
        (requests by value) and `declared_max_tokens` (requests that declare a limit).
    """
    arrival_us = np.sort(workload.arrival_us)
    count = workload.num_requests
    span_s = float(arrival_us[-1] - arrival_us[0]) / 1e6 if count else 0.0
    gaps = np.diff(arrival_us)
    values, numbers = np.unique(workload.priority, return_counts=True)
    return {
        "num_requests": count,
        "span_s": span_s,
        "rate_per_s": (count - 1) / span_s if span_s > 0 else None,
        "gap_cv": float(gaps.std() / gaps.mean()) if len(gaps) and gaps.mean() > 0 else None,
        "rate_over_time_per_s": _rate_over_time(arrival_us, bins),
        "prompt_tokens": _lengths(workload.prompt_tokens),
        "output_tokens": _lengths(workload.output_tokens),
        "prefix": _prefix(workload),
        "priorities": {str(value): int(number) for value, number in zip(values, numbers, strict=True)},
        "declared_max_tokens": int(np.count_nonzero(workload.max_tokens)),
    }


def _rate_over_time(arrival_us: npt.NDArray[np.int64], bins: int) -> list[float]:
    if len(arrival_us) == 0 or arrival_us[-1] == arrival_us[0]:
        return []
    width_s = (arrival_us[-1] - arrival_us[0]) / 1e6 / bins
    counts, _ = np.histogram(arrival_us, bins=bins)
    return [float(each) / width_s for each in counts]


def _lengths(tokens: npt.NDArray[np.int32]) -> dict[str, float]:
    if len(tokens) == 0:
        return {}
    found: dict[str, float] = {"mean": float(tokens.mean()), "min": int(tokens.min())}
    found |= {f"p{p}": float(value) for p, value in zip(PERCENTILES, np.percentile(tokens, PERCENTILES), strict=True)}
    return found | {"max": int(tokens.max()), "total": int(tokens.sum(dtype=np.int64))}


def _prefix(workload: Workload) -> dict[str, float]:
    """Sharing as an unlimited cache sees it: what is new in each group is the longest prefix taken from it so far."""
    member = workload.prefix_group >= 0
    total = int(workload.prompt_tokens.sum(dtype=np.int64))
    shared = np.minimum(workload.prefix_tokens, workload.prompt_tokens)
    seen = np.zeros(workload.groups.num_groups, np.int64)
    parent, start = workload.groups.parent.tolist(), workload.groups.start_tokens.tolist()
    repeated = 0
    for index in workload.arrival_order()[member[workload.arrival_order()]].tolist():
        group, end = int(workload.prefix_group[index]), int(shared[index])
        while group >= 0:
            own = end - start[group]
            if own > 0:
                repeated += min(int(seen[group]), own)
                seen[group] = max(int(seen[group]), own)
                end = start[group]
            group = parent[group]
    return {
        "groups": len(np.unique(workload.prefix_group[member])),
        "requests": int(np.count_nonzero(member)),
        "token_share": int(shared[member].sum(dtype=np.int64)) / max(total, 1),
        "repeated_token_share": repeated / max(total, 1),
    }
