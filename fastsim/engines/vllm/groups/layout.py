"""KV cache groups and speculation of one configuration, as plain values; and many of them as the kernels read them."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm
from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.engines.vllm.groups.codes import DENSE, GROUPS_CONFIG_DTYPE, GroupKind, Groups

NO_CAP = 2**31 - 1


@dataclass(frozen=True)
class Group:
    """One KV cache group; tokens and blocks."""

    kind: GroupKind
    block_size: int
    parameter: int = 0  # window or chunk
    spec_blocks: int = 0
    checkpoint: bool = False


@dataclass(frozen=True)
class Speculation:
    """How drafts are made and verified; `method` is ngram, draft_model or eagle, and None without drafts."""

    method: str | None = None
    k: int = 0
    lookahead_hashes: bool = True
    accept_permille: tuple[int, ...] = ()
    seed: int = 0
    hashed_drafts: bool = False
    draft_us: float = 0.0
    draft_us_per_token: float = 0.0


@dataclass(frozen=True)
class Layout:
    """What a configuration has beyond vLLM's plain scheduler. `retention`: None keeps everything."""

    groups: tuple[Group, ...]
    retention: int | None = 0
    speculation: Speculation = Speculation()

    @property
    def is_plain(self) -> bool:
        """One full-attention group and no drafts: not for these kernels."""
        return self.speculation.method is None and [group.kind for group in self.groups] == [GroupKind.FULL]


@dataclass(frozen=True)
class GroupRecords:
    """Configurations as the kernels read them: `engine` (GROUPS_CONFIG_DTYPE) and their groups one behind the other."""

    engine: npt.NDArray[np.void]
    groups: Groups


def group_records(plain: npt.NDArray[np.void], layouts: Sequence[Layout]) -> GroupRecords:
    """Records of configurations, from those of vLLM (CONFIG_DTYPE) and the layouts."""
    records = np.zeros(len(plain), GROUPS_CONFIG_DTYPE)
    for name in plain.dtype.names or ():
        records[name] = plain[name]
    columns: dict[str, list[int]] = {name: [] for name in Groups._fields}
    for record, layout in zip(records, layouts, strict=True):
        record["first_group"] = len(columns["kind"])
        record["first_accept"] = len(columns["accept_permille"])
        _fill(record, layout, columns)
    return GroupRecords(records, Groups(**{name: np.array(values, np.int32) for name, values in columns.items()}))


def _fill(record: Any, layout: Layout, columns: dict[str, list[int]]) -> None:
    """One record, and its part of the columns of `Groups`."""
    groups, spec = layout.groups, layout.speculation
    common = lcm(*(group.block_size for group in groups))
    drops = int(spec.method == "eagle" and not spec.lookahead_hashes)
    record["num_groups"] = len(groups)
    record["common"] = common
    record["block_size"] = min(group.block_size for group in groups)
    record["retention"] = DENSE if layout.retention is None else layout.retention
    record["aligned_group"] = next((j for j, group in enumerate(groups) if group.kind == GroupKind.ALIGNED), -1)
    record["k"] = spec.k if spec.method else 0
    record["lookahead"] = spec.k if spec.method in ("draft_model", "eagle") else 0
    record["draft_slots"] = int(spec.method == "draft_model")
    record["hash_lookahead"] = int(spec.method == "eagle" and spec.lookahead_hashes)
    record["drops_block"] = drops
    record["hashed_drafts"] = spec.hashed_drafts
    record["spec_seed"] = spec.seed
    record["draft_us"] = spec.draft_us
    record["draft_us_per_token"] = spec.draft_us_per_token
    columns["accept_permille"] += spec.accept_permille
    scheduled = (1 + int(record["asynchronous"])) * int(record["max_num_batched_tokens"])
    for group in groups:
        columns["kind"].append(group.kind)
        columns["block_size"].append(group.block_size)
        columns["parameter"].append(group.parameter)
        columns["run"].append(-(-(group.parameter - 1) // group.block_size) if group.kind == GroupKind.SLIDING else 0)
        columns["spec_blocks"].append(group.spec_blocks)
        columns["checkpoint"].append(int(group.checkpoint))
        columns["cap"].append(_cap(group, scheduled, int(record["max_model_len"])))
        columns["drops"].append(drops if group.kind != GroupKind.ALIGNED else 0)
        period = (layout.retention or common) if group.kind == GroupKind.SLIDING else (layout.retention or 0)
        columns["period"].append(period // group.block_size)
        columns["offset"].append(0)
    classes = list(dict.fromkeys(sorted(groups, key=lambda group: group.kind != GroupKind.FULL)))
    by_class = sorted(range(len(groups)), key=lambda j: classes.index(groups[j]))
    columns["by_class"] += by_class
    columns["class_of"] += [classes.index(groups[j]) for j in by_class]
    record["full_first"] = len(classes) == 2 and classes[0].kind == GroupKind.FULL


def _cap(group: Group, scheduled: int, max_model_len: int) -> int:
    """Blocks at most that the gate asks for: a window and the tokens of one step (asynchronous: of two)."""
    match group.kind:
        case GroupKind.SLIDING:
            return -(-min(group.parameter - 1 + scheduled, max_model_len) // group.block_size) + 1
        case GroupKind.CHUNKED:
            return -(-min(group.parameter + scheduled, max_model_len) // group.block_size)
    return NO_CAP
