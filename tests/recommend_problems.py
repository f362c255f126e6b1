"""Random questions of the kind that `fastsim recommend` answers, small enough to run every setting."""

from dataclasses import dataclass

import numpy as np

from fastsim.analysis.compare.bootstrap import mean_intervals
from fastsim.analysis.evaluate.evaluate import Evaluator
from fastsim.analysis.recommend.choice import choose
from fastsim.analysis.recommend.rate import max_rate_of
from fastsim.analysis.recommend.slo import Outlook
from fastsim.analysis.recommend.space import SEQS, TOKENS, Space, space_of
from fastsim.analysis.recommend.trials import FRESH, Traffic, Trials
from fastsim.analysis.terms import slo_terms
from fastsim.config import spec_from_mapping

AXES = {
    SEQS: [2, 4, 6, 8, 10, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 128, 192, 256],
    TOKENS: [128, 256, 384, 512, 768, 1024, 1536, 2048, 4096, 8192],
}
SEEDS = 8
TRUTH = range(2000, 2000 + SEEDS)
"""Seeds of the full grid, which neither the search nor its confirmation sees."""
JUDGE = range(3000, 3000 + 2 * SEEDS)
"""Seeds on which the two answers are compared: on its own, the best of 200 looks better than it is."""
WITHIN = 0.01
"""A setting is as good as the best when it is worth this little less, or no difference is shown over the seeds."""


@dataclass(frozen=True)
class Verdict:
    """What came of one problem; `regret` is the relative worth that was lost."""

    found: dict
    best: dict
    good: bool
    regret: float
    meets: bool
    runs: int
    full_runs: int


def problem(seed: int) -> dict:
    """A spec: KV pool, step times, load and SLO drawn at random, from idle to far beyond what can be served."""
    rng = np.random.default_rng([seed, 4711])

    def log(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    prompt, output = log(50, 1500), log(20, 400)
    dist = rng.choice(["lognormal", "uniform"])
    lengths = {}
    for name, mean in (("prompt", prompt), ("output", output)):
        if dist == "lognormal":
            lengths[name] = {
                "dist": "lognormal",
                "mean": mean,
                "stdev": mean * rng.uniform(0.3, 1.2),
                "max": int(mean * 5),
            }
        else:
            lengths[name] = {"dist": "uniform", "min": max(int(mean / 2), 1), "max": int(mean * 1.5)}
    latency = {
        "b0_us": log(2000, 30000),
        "b1_us_per_prefill_token": log(5, 200),
        "b2_us_per_decode_token": log(2, 50),
        "b3_us_per_context_token": log(0.001, 0.2),
    }
    # So many requests of the longest fit; the load is a share of what batches of half of them would serve
    fit = log(6, 100)
    blocks = max(int(fit * (prompt + output) / 16), int(5 * (prompt + output) / 16)) + 2
    step_us = latency["b0_us"] + fit / 2 * (
        latency["b2_us_per_decode_token"] + latency["b3_us_per_context_token"] * prompt
    )
    capacity = 1e6 / (latency["b1_us_per_prefill_token"] * prompt + output * step_us / (fit / 2))
    workload = {"num_requests": int(rng.integers(150, 300)), **lengths}
    kind = rng.choice(["poisson", "gamma", "closed_loop"], p=[0.5, 0.25, 0.25])
    if kind == "closed_loop":
        workload["concurrency"] = int(log(4, 128))
    else:
        workload["arrival"] = {"kind": str(kind), "rate_per_s": capacity * log(0.3, 1.5)}
        if kind == "gamma":
            workload["arrival"]["cv"] = log(1, 3)
    tpot_ms = step_us / 1000 * log(0.8, 4)
    slo = {
        "tpot_ms": tpot_ms,
        "ttft_ms": (latency["b0_us"] + latency["b1_us_per_prefill_token"] * prompt) / 1000 * log(4, 60),
    }
    if rng.random() < 0.3:
        slo.pop(str(rng.choice(["tpot_ms", "ttft_ms"])))
    return {
        "engine": {
            "num_gpu_blocks": blocks,
            "max_model_len": int(5 * (prompt + output)) + 10,
            "enable_prefix_caching": False,
        },
        "latency": latency,
        "workload": workload,
        "slo": slo,
        "sweep": {"axes": AXES},
    }


def setting(seed: int, evaluator: Evaluator) -> tuple[Space, Trials, Traffic]:
    """The problem ready to be searched."""
    space = space_of(spec_from_mapping(problem(seed)))
    return space, Trials(evaluator, slo_terms(space.base)), Traffic(space.base.workload)


def solve(seed: int) -> Verdict:
    """Search and confirm, as the command does; then run every setting with seeds of its own, and compare."""
    space, trials, traffic = setting(seed, Evaluator())
    chosen = choose(space, trials, traffic, range(FRESH, FRESH + SEEDS)).best
    runs = trials.runs

    points = list(space.points())
    outlooks = trials.outlooks([space.config(point) for point in points], traffic, TRUTH)
    best = points[max(range(len(points)), key=lambda k: outlooks[k].rank)]
    mine, theirs = trials.outlooks([chosen.config, space.config(best)], traffic, JUDGE)
    good, regret = as_good(mine, theirs)
    return Verdict(chosen.labels, space.labels(best), good, regret, theirs.meets, runs, len(points) * SEEDS)


def as_good(chosen: Outlook, best: Outlook) -> tuple[bool, float]:
    """Whether a setting is the best or one within noise of it: it meets the SLO too, or is not sure to miss it."""
    if best.meets and not chosen.meets and chosen.sure:
        return False, float("inf")
    lost = best.by_seed - chosen.by_seed
    regret = float(lost.mean()) / max(best.worth, 1e-9)
    low = float(mean_intervals(lost[:, None])[1][0])
    return regret <= WITHIN or low <= 0, regret


STEP = 1.03
"""Brute force tries every rate in such steps, from two thirds of the answer to one and a half times."""
MANY = range(5000, 5048)


@dataclass(frozen=True)
class RateVerdict:
    """The answer with its interval, and the brute force's: the highest rate below the first that misses, and that."""

    rate: float
    low: float
    high: float
    true_low: float
    true_high: float
    runs: int

    @property
    def good(self) -> bool:
        """Whether the stated interval holds the true rate, which is known to one step."""
        return self.low <= self.true_high and self.true_low <= self.high


def solve_rate(seed: int, many: range = MANY, step: float = STEP) -> RateVerdict | None:
    """The highest rate of one setting of a problem, and by brute force over other seeds.

    None: it has none, or the answer itself says that the load is too short to have a rate.
    """
    space, trials, traffic = setting(seed, Evaluator())
    rng = np.random.default_rng([seed, 815])
    seqs, tokens = int(rng.choice([8, 16, 32, 64, 128])), int(rng.choice([256, 512, 1024, 2048]))
    config = space.with_settings({SEQS: seqs, TOKENS: tokens})
    if traffic.rate_per_s is None:
        return None
    found = max_rate_of(trials, traffic, config, range(FRESH, FRESH + SEEDS))
    runs = trials.runs
    if found is None or found.too_short:
        return None
    reach = int(np.log(1.5) / np.log(step))
    rates = found.rate_per_s * step ** np.arange(-reach, reach + 1)
    met = [
        trials.outlooks([config], traffic.scaled(rate=rate / traffic.rate_per_s), many)[0].meets
        for rate in rates.tolist()
    ]
    first = met.index(False) if False in met else len(met)
    true_low = float(rates[first - 1]) if first else 0.0
    true_high = float(rates[first]) if first < len(rates) else float("inf")
    return RateVerdict(found.rate_per_s, found.low_per_s, found.high_per_s, true_low, true_high, runs)


__all__ = ["RateVerdict", "Verdict", "problem", "setting", "solve", "solve_rate"]
