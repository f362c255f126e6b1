"""Prefix trees: what chains of content become, what is left of them, and how they are written."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastsim.config import WorkloadConfig
from fastsim.workload import Workload, build_workload, load_trace
from fastsim.workload.describe import describe
from fastsim.workload.prefix_tree import Grouped, PrefixTree, groups_of_chains, pruned
from fastsim.workload.write import merged, write_plain

from .sentences import bad_input

DATA = Path(__file__).parent / "data"
MOONCAKE = DATA / "mooncake_conversation_first300.jsonl"
BLOCK = 512
Chains = list[list[int]]

chains_of_ids = st.lists(st.lists(st.integers(0, 2), max_size=5), min_size=1, max_size=12)


def grouped(chains: Chains, block: int = 4) -> Grouped:
    ids = np.array([each for chain in chains for each in chain], np.int64)
    ends = np.cumsum([len(chain) for chain in chains])
    return groups_of_chains(ids, ends, np.array([len(chain) * block + 1 for chain in chains]), block)


def content(found: Grouped, request: int, block: int = 4) -> list[tuple[int, int]]:
    """What each shared block of a request is, as (group, block): equal exactly where content is shared."""
    out = []
    for first in range(0, int(found.tokens[request]), block):
        group = int(found.group[request])
        while found.tree.start_tokens[group] > first:
            group = int(found.tree.parent[group])
        out.append((group, first))
    return out


def shared_blocks(chains: Chains, request: int) -> int:
    """How many leading blocks of a chain another chain has as well."""
    own = chains[request]
    most = 0
    for other, chain in enumerate(chains):
        if other != request:
            same = 0
            while same < min(len(own), len(chain)) and own[same] == chain[same]:
                same += 1
            most = max(most, same)
    return most


@settings(max_examples=300)
@given(chains_of_ids)
def test_groups_share_exactly_what_chains_share(chains: Chains) -> None:
    found = grouped(chains)
    blocks = [content(found, request) for request in range(len(chains))]
    for one in range(len(chains)):
        assert len(blocks[one]) == shared_blocks(chains, one)
        for two in range(one):
            for k in range(min(len(blocks[one]), len(blocks[two]))):
                assert (blocks[one][k] == blocks[two][k]) == (chains[one][: k + 1] == chains[two][: k + 1])
    users = np.bincount(found.group[found.group >= 0], minlength=found.tree.num_groups)
    children = np.bincount(found.tree.parent[found.tree.parent >= 0], minlength=found.tree.num_groups)
    assert ((users >= 2) | (users + children >= 2)).all(), "no group for the content of a single request"
    assert (children + users >= 2).all(), "a group goes on as long as its requests do"


@settings(max_examples=300)
@given(chains_of_ids, st.data())
def test_pruning_leaves_what_the_rest_shares(chains: Chains, data: st.DataObject) -> None:
    kept = data.draw(st.lists(st.booleans(), min_size=len(chains), max_size=len(chains)))
    mask = np.array(kept)
    whole = grouped(chains)
    rest = [chain for chain, keep in zip(chains, kept, strict=True) if keep]
    left = pruned(Grouped(whole.group[mask], whole.tokens[mask], whole.tree))
    Workload.from_arrays(  # the tree is a valid one
        np.zeros(len(rest), int),
        np.full(len(rest), 100),
        np.ones(len(rest), int),
        prefix_group=left.group,
        prefix_tokens=left.tokens,
        groups=left.tree,
    )
    for request in range(len(rest)):
        assert len(content(left, request)) == shared_blocks(rest, request)


def test_chains_as_drawn_by_hand() -> None:
    chains = [[1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 9], [1, 2, 3, 4], [7], []]
    found = grouped(chains)
    assert found.tree.parent.tolist() == [-1, 0, 1]
    assert found.tree.start_tokens.tolist() == [0, 8, 12]
    assert found.group.tolist() == [2, 1, 0, 2, -1, -1]
    assert found.tokens.tolist() == [16, 12, 8, 16, 0, 0]
    workload = Workload.from_arrays(
        [0] * 6, [20] * 6, [1] * 6, prefix_group=found.group, prefix_tokens=found.tokens, groups=found.tree
    )
    assert workload.group_end_tokens.tolist() == [8, 12, 16]
    figures = describe(workload)["prefix"]
    assert figures["repeated_token_share"] == pytest.approx((12 + 8 + 16) / 120)


def test_the_mooncake_sample_against_a_plain_cache() -> None:
    """The first request of the sample is a system prompt of one block that all share."""
    import json

    rows = [json.loads(line) for line in MOONCAKE.read_text().splitlines()]
    seen: set[int] = set()
    repeated = 0
    for row in rows:
        hits = 0
        while hits < len(row["hash_ids"]) and row["hash_ids"][hits] in seen:
            hits += 1
        repeated += min(hits * BLOCK, row["input_length"])
        seen.update(row["hash_ids"])
    total = sum(row["input_length"] for row in rows)
    workload = build_workload(WorkloadConfig(trace=str(MOONCAKE)))
    assert describe(workload)["prefix"]["repeated_token_share"] == pytest.approx(repeated / total)
    assert repeated > 0


def test_the_first_requests_form_their_own_tree() -> None:
    whole, part = load_trace(MOONCAKE), build_workload(WorkloadConfig(trace=str(MOONCAKE), num_requests=3))
    assert whole.groups is not None
    assert part.groups.num_groups < whole.groups.num_groups
    assert part.prefix_tokens.tolist() == [BLOCK] * 3


def test_a_tree_changes_the_identity_and_a_flat_one_does_not() -> None:
    arrays = ([0, 1], [50, 50], [1, 1])
    flat = Workload.from_arrays(*arrays, prefix_group=[0, 1], prefix_tokens=[9, 9])
    same = Workload.from_arrays(
        *arrays, prefix_group=[0, 1], prefix_tokens=[9, 9], groups=PrefixTree(np.array([-1, -1]), np.array([0, 0]))
    )
    tree = Workload.from_arrays(
        *arrays, prefix_group=[0, 1], prefix_tokens=[9, 9], groups=PrefixTree(np.array([-1, 0]), np.array([0, 4]))
    )
    assert flat.workload_id == same.workload_id
    assert tree.workload_id != flat.workload_id
    assert tree.group_end_tokens.tolist() == [9, 9]


WRONG_TREES = [
    ([-1], [0], ["one entry for each of 2 prefix groups"]),
    ([-1, 1], [0, 4], ["prefix group 1", "parent 1"]),
    ([-1, 0], [0, 0], ["prefix group 1", "token 0"]),
    ([-1, -1], [0, 4], ["prefix group 1", "-1 and 0"]),
    ([-2, -1], [0, 0], ["prefix group 0"]),
]


@pytest.mark.parametrize(("parent", "start", "named"), WRONG_TREES)
def test_a_wrong_tree_is_one_sentence(parent: list[int], start: list[int], named: list[str]) -> None:
    tree = PrefixTree(np.array(parent), np.array(start))
    bad_input(
        lambda: Workload.from_arrays([0, 0], [9, 9], [1, 1], prefix_group=[0, 1], prefix_tokens=[8, 8], groups=tree),
        *named,
    )


def test_a_group_number_far_too_high_is_one_sentence() -> None:
    bad_input(lambda: Workload.from_arrays([0], [9], [1], prefix_group=[2**30], prefix_tokens=[1]), "prefix_group")


@pytest.mark.parametrize("source", [MOONCAKE, DATA / "azure2023_conv_first2000.csv"])
def test_what_is_written_is_read_back(source: Path, tmp_path: Path) -> None:
    workload = build_workload(WorkloadConfig(trace=str(source)))
    write_plain(workload, tmp_path / "out.csv")
    again = build_workload(WorkloadConfig(trace=str(tmp_path / "out.csv")))
    for name in ("arrival_us", "prompt_tokens", "output_tokens", "prefix_tokens"):
        assert getattr(again, name).tolist() == getattr(workload, name).tolist()
    assert describe(again) == describe(workload)


def test_a_synthetic_workload_is_read_back_alike(tmp_path: Path) -> None:
    tables = {
        "max_tokens": {"dist": "factor", "factor": 2.0},
        "prefix": {"groups": 3, "tokens": 20, "share": 0.7},
        "priority": {"values": (-1, 2)},
    }
    workload = build_workload(WorkloadConfig(**tables))  # type: ignore[arg-type]
    write_plain(workload, tmp_path / "out.csv")
    again = build_workload(WorkloadConfig(trace=str(tmp_path / "out.csv")))
    assert again.workload_id == workload.workload_id
    bad_input(lambda: write_plain(workload, tmp_path / "no" / "out.csv"), "cannot be written")


def test_a_changed_workload_stays_read_only() -> None:
    """Arrays that can be written have another type in kernels, which would be compiled again for them."""
    workload = build_workload(WorkloadConfig(num_requests=3))
    changed = replace(workload, arrival_us=workload.arrival_us * 2)
    assert not changed.arrival_us.flags.writeable
    assert changed.arrival_us.tolist() == (workload.arrival_us * 2).tolist()


def test_merged_classes_keep_their_own_prefixes() -> None:
    one = build_workload(WorkloadConfig(trace=str(MOONCAKE)))
    two = Workload.from_arrays(
        [5, 900_000_000], [30, 40], [1, 2], priority=[1, 1], prefix_group=[0, 0], prefix_tokens=[8, 8]
    )
    both = merged([one, two])
    assert both.num_requests == 302
    assert (np.diff(both.arrival_us) >= 0).all()
    assert both.priority.sum() == 2
    mine = both.priority == 1
    assert len(set(both.prefix_group[mine].tolist())) == 1
    assert not set(both.prefix_group[mine].tolist()) & set(both.prefix_group[~mine].tolist())
    figures, alone = describe(both)["prefix"], describe(one)["prefix"]
    total = int(both.prompt_tokens.sum())
    assert figures["repeated_token_share"] * total == pytest.approx(
        alone["repeated_token_share"] * int(one.prompt_tokens.sum()) + 8
    )
    closed = Workload.from_arrays([0], [1], [1], concurrency=1)
    bad_input(lambda: merged([closed, two]), "closed loop")
