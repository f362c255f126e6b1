"""What the command line prints fits 80 columns, however long names and values are, and nothing of it is lost."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastsim.cli import main
from fastsim.cli.tables import WIDTH, counted, table
from fastsim.metrics import COLUMNS

# --- tables ---------------------------------------------------------------------------------------------------------

WORDS = st.lists(st.sampled_from(["a", "of", "vllm-0.33.0-async", "slot_preempt,", "x" * 90]), max_size=9).map(" ".join)
CELLS = st.one_of(WORDS, st.integers(-(10**12), 10**12), st.floats(allow_infinity=False), st.none(), st.booleans())


def test_one_is_no_plural():
    assert [counted(count, "row") for count in (0, 1, 2000)] == ["0 rows", "1 row", "2,000 rows"]


@st.composite
def tables(draw):
    names = st.sampled_from(["x", "engine.kv_transfer_bandwidth", "request_throughput_req_per_s", "n" * 85])
    header = draw(st.lists(names, min_size=1, max_size=14))
    rows = draw(st.lists(st.lists(CELLS, min_size=len(header), max_size=len(header)), max_size=4))
    return header, rows, draw(st.integers(0, len(header))), draw(st.integers(0, len(header)))


@settings(max_examples=80, deadline=None)
@given(tables())
def test_every_table_fits_and_shows_every_letter(case):
    header, rows, left, keys = case
    text = table(header, rows, left=left, keys=keys)
    assert all(len(line) <= WIDTH for line in text.splitlines())
    for name in ("x" * 90, "n" * 85):  # broken anywhere, but whole
        count = sum(cell.count(name) for row in [header, *rows] for cell in row if isinstance(cell, str))
        assert text.count(name[0]) >= count * len(name)
    for row in [header, *rows]:
        for word in (word for cell in row if isinstance(cell, str) for word in cell.split()):
            pieces = word.replace("_", "_ ").replace(".", ". ").split() if word in header else [word]
            assert all(piece in text for piece in pieces if len(piece) < 70)


def test_headers_are_broken_first_and_units_stay_whole():
    text = table(["x", *(f"rather_long_column_{k}_req_per_s" for k in range(5))], [["a", *range(5)]])
    assert text.splitlines()[-2].split() == ["x", *["req_per_s"] * 5]
    assert text.splitlines()[-1].split() == ["a", *"01234"]


def test_then_texts_are_broken_at_spaces():
    text = table(["rule", *"abcdef"], [["priority, slot_preempt, boost 3", *[1234567] * 6], ["fcfs", *[2] * 6]])
    assert [line.split("  ")[0] for line in text.splitlines()] == [
        "rule",
        "priority,",
        "slot_preempt,",
        "boost 3",
        "fcfs",
    ]
    assert text.splitlines()[1].split() == ["priority,", *["1,234,567"] * 6]


def test_what_is_still_too_wide_goes_on_below_after_its_keys():
    header = ["setting", "seed", *(f"metric{k}" for k in range(12))]
    rows = [[f"setting{row}", row, *(100_000 * row + 10_000 + k for k in range(12))] for row in range(3)]
    parts = [part.splitlines() for part in table(header, rows, keys=2).split("\n\n")]
    assert len(parts) == 2
    for line in range(4):
        words = [part[line].split() for part in parts]
        expected = header if line == 0 else [str(cell) for cell in rows[line - 1]]
        assert all(shown[:2] == expected[:2] for shown in words)
        assert [word.replace(",", "") for shown in words for word in shown[2:]] == expected[2:]


def test_keys_too_wide_to_repeat_are_stood_for_by_the_number_of_the_row():
    header = [*(f"an_axis_with_a_long_name_{k}" for k in range(8)), "cost"]
    parts = table(header, [["a long text as a value"] * 8 + [5], ["b"] * 8 + [6]], keys=8).split("\n\n")
    assert len(parts) > 1
    assert all(part.splitlines()[-1].split()[0] == "2" for part in parts)
    assert parts[-1].splitlines()[-1].split()[-1] == "6"


# --- every verb -----------------------------------------------------------------------------------------------------

METRICS = [column.name for column in COLUMNS if column.kind != "code" and column.name.endswith("_ms")][:12]
SPEC = f"""
engine.num_gpu_blocks = 70
engine.max_model_len = 2048
workload.num_requests = 12
workload.prompt = {{ dist = "uniform", min = 100, max = 300 }}
workload.output = {{ dist = "uniform", min = 100, max = 300 }}
[sweep]
seeds = 3
[sweep.axes]
engine.max_num_seqs = [2, 12]
engine.scheduler_reserve_full_isl = [true, false]
[sweep.choice.a_choice_with_quite_a_long_name]
"the first of two choices, which is described in a whole sentence" = {{ engine.victim = "least_computed" }}
"second, with_a_word_that_cannot_be_broken_anywhere_at_all_and_goes_on" = {{ workload.arrival.rate_per_s = 100000 }}
[answer]
question = "Which of all these settings is the one that somebody who has read this far would choose for a server?"
where = ["e2e_served_mean_ms <= 100000000", "longest_admission_wait_ms >= 0"]
best = ["least ttft_served_mean_ms", "most request_throughput_req_per_s"]
for_each = ["engine.scheduler_reserve_full_isl", "choice.a_choice_with_quite_a_long_name"]
show = {METRICS!r}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A finished sweep of awkward names, beside its spec and a trace."""
    path = tmp_path_factory.mktemp("awkward")
    (path / "spec.toml").write_text(SPEC)
    rows = [f"{k / 3},{100 + k},{50 + k},{'a tenant with quite a long name' if k % 2 else 'x'}" for k in range(40)]
    (path / "trace.csv").write_text("\n".join(["arrival_s,prompt_tokens,output_tokens,class", *rows]))
    with pytest.raises(SystemExit) as stop:
        main(["sweep", str(path / "spec.toml"), "--out", str(path / "out"), "--workers", "1"])
    assert stop.value.code == 0
    return path


@pytest.mark.parametrize(
    "line",
    [
        "sweep spec.toml --out out",
        "sweep spec.toml --dry-run",
        "status out",
        "run spec.toml",
        "run --trace trace.csv --set engine.num_gpu_blocks=100",
        "check spec.toml",
        "explain spec.toml --request 3",
        "compare out --by engine.max_num_seqs",
        "compare out --by choice.a_choice_with_quite_a_long_name",
        "compare out --by engine.max_num_seqs --with choice.a_choice_with_quite_a_long_name",
        "compare out --pareto ttft_p99_ms,request_throughput_req_per_s",
        "phase spec.toml --x engine.num_gpu_blocks=60:400:8 --y choice.a_choice_with_quite_a_long_name --seeds 1",
        "recommend spec.toml --axis engine.max_num_seqs=2,12 --axis engine.max_num_batched_tokens=512,2048 "
        "--ttft-ms 100000 --seeds 2 --workers 1",
        "workload show trace.csv",
        "policies",
        "columns",
    ],
)
def test_every_verb_fits(folder, monkeypatch, capsys, line):
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as stop:
        main(line.split())
    captured = capsys.readouterr()
    assert stop.value.code == 0, captured.err
    wide = [text for text in captured.out.splitlines() if len(text) > WIDTH]
    assert not wide
    assert captured.out
