"""What a sweep was asked, and the answer in words: handed in by whoever reads the spec."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from fastsim.engines.declaration import DEFAULT_ENGINE

MEETS = "meets"
"""The column that says whether a row meets the conditions of the question."""


@dataclass(frozen=True)
class Question:
    """The `[answer]` of a spec as a report needs it.

    Attributes
    ----------
    text, answer
        The question in words (empty: none was asked) and the answer in a sentence (empty: none).
    title, table
        The rows that answer it, axes first, and what they are.
    objectives
        Result columns and whether more of each is better; ties of the first go to the next.
    condition, condition_text
        Whether a row meets the conditions: an expression over the rows, and in words. None: there are no conditions.
    for_each
        Axes that the answer does not choose a value for.
    columns
        More result columns that the question shows.
    limits
        Columns and the numbers that the conditions compare them with.
    chosen
        The setting that the answer names: values of axes by name. None: it names none.
    ranking
        Settings (axes), in how many `groups` (values of `for_each`) they meet the conditions, and the objectives' means
        there, the chosen one first.
    groups
        How many values of `for_each` there are.
    engine
        The engine that the base configuration runs.
    """

    text: str = ""
    answer: str = ""
    title: str = ""
    table: pl.DataFrame | None = None
    objectives: tuple[tuple[str, bool], ...] = ()
    condition: pl.Expr | None = None
    condition_text: str = ""
    for_each: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    limits: tuple[tuple[str, float], ...] = ()
    chosen: Mapping[str, Any] | None = None
    ranking: pl.DataFrame | None = None
    groups: int = 1
    engine: str = DEFAULT_ENGINE
