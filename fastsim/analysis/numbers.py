"""Numbers and result columns as people read them."""

from typing import Any

_UPPER = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E", "itl": "ITL", "kv": "KV", "slo": "SLO"}
_UNITS = {"ms": "_ms", "s": "_s", "req/s": "_req_per_s", "tok/s": "_tok_per_s"}


def number(value: Any) -> str:
    """A value in at most about eight characters; null is a dash."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if value != value:
            return "-"
        size = abs(value)
        if value == int(value) and size < 1e6:
            return f"{int(value):,}"
        if size >= 1000:
            return f"{value:,.0f}"
        return f"{value:.4g}" if size >= 1 else f"{value:.3g}"
    return str(value)


def more_seeds(seeds: int, gives: str) -> str:
    """What to do about a single seed: `sweep.seeds = 30 gives one`, and where it would not help."""
    return f"sweep.seeds = {seeds} {gives} (not for a trace, which no seed changes)"


def column_label(name: str) -> str:
    """A result column in words with its unit: `TTFT p99, ms`."""
    from fastsim.metrics.names import by_name, split_class  # it loads NumPy, which `fastsim --help` does without

    column = by_name().get(name)
    unit = column.unit if column is not None else ""
    name, of = split_class(name)
    stem = name.removesuffix(_UNITS.get(unit, ""))
    words = " ".join(_UPPER.get(word, word) for word in stem.split("_"))
    if unit == "req/s":
        unit = "requests/s"
    elif unit == "tok/s":
        unit = "tokens/s"
    elif unit in ("share", "count", "requests") or unit == words.split(" ")[-1]:
        unit = ""  # the name says it
    words += f" of {of}" if of else ""
    return f"{words}, {unit}" if unit else words


def short_key(key: str) -> str:
    """The last part of a dotted key, where it says enough: `max_num_seqs`, but `engine` for `engine.name`."""
    head, _, last = key.rpartition(".")
    return head.rpartition(".")[2] if last in ("name", "kind", "dist") and head else last


def as_title(words: str) -> str:
    """With a capital first letter, unless it begins with a key."""
    first = words.partition(" ")[0]
    return words if "." in first or "_" in first else words[:1].upper() + words[1:]
