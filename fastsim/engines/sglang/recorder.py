"""What is written down of every pass, in the columns of the recordings. A record without rows is off."""

from fastsim._jit import helper
from fastsim.engines.sglang.codes import DECODE, EXTEND, IDLE, MIXED, NONE
from fastsim.engines.sglang.state import ROW_COLUMNS
from fastsim.engines.sglang.waiting import num_waiting

(
    T_US,
    KIND,
    FIRST_ITEM,
    NUM_EXTENDS,
    NUM_DECODES,
    NUM_RETRACTED,
    NUM_PREEMPTED,
    ABORTED,
    FIRST_FINISHED,
    NUM_FINISHED,
    FREE_SCHEDULED,
    FREE,
    EVICTABLE,
    LOCKED,
    ROWS_USED,
    WAITING,
    FULL,
    START_US,
    END_US,
    PROCESSED,
) = range(len(ROW_COLUMNS))


@helper
def write_item(st, s, value):
    """One number of a list. What does not fit is counted."""
    if st["items"] < s.record.items.shape[0]:
        s.record.items[st["items"]] = value
    st["items"] += 1


@helper
def note_pass(cfg, st, s, has_batch):
    """Write the row of a pass that ran a batch, or put somebody back or aborted somebody."""
    record = s.record
    if record.rows.shape[0] == 0:
        return
    if not has_batch and st["num_retracted"] == 0 and st["num_preempted"] == 0 and st["aborted"] == NONE:
        return
    row = st["rows"]
    st["rows"] += 1
    b = s.batches
    slot = st["batch"]
    b.row[slot] = row
    first_item = st["items"]
    first = slot * st["num_requests"]
    for at in range(first, first + b.num_extends[slot]):
        write_item(st, s, b.extend[at])
        write_item(st, s, b.extend_tokens[at])
        write_item(st, s, b.extend_start[at])
    for at in range(first, first + b.num_decodes[slot]):
        write_item(st, s, b.decode[at])
    for k in range(st["num_retracted"]):
        write_item(st, s, s.lists.retracted[k])
    for k in range(st["num_preempted"]):
        write_item(st, s, s.lists.preempted[k])
    if row >= record.rows.shape[0]:
        return
    kind = IDLE
    if b.num_extends[slot] > 0:
        kind = MIXED if b.num_decodes[slot] > 0 else EXTEND
    elif b.num_decodes[slot] > 0:
        kind = DECODE
    record.ratio[row] = st["ratio"]
    record.rows[row, T_US] = st["now_us"]
    record.rows[row, KIND] = kind
    record.rows[row, FIRST_ITEM] = first_item
    record.rows[row, NUM_EXTENDS] = b.num_extends[slot]
    record.rows[row, NUM_DECODES] = b.num_decodes[slot]
    record.rows[row, NUM_RETRACTED] = st["num_retracted"]
    record.rows[row, NUM_PREEMPTED] = st["num_preempted"]
    record.rows[row, ABORTED] = st["aborted"]
    record.rows[row, NUM_FINISHED] = 0
    record.rows[row, FREE_SCHEDULED] = st["free"]
    record.rows[row, FULL] = st["full"]
    record.rows[row, START_US] = b.start_us[slot] if has_batch else st["now_us"]
    record.rows[row, END_US] = b.end_us[slot] if has_batch else st["now_us"]
    record.rows[row, PROCESSED] = 0
    if not has_batch:
        note_processed(cfg, st, s, slot)


@helper
def note_finished(st, s, i):
    """Request `i` ended with the output that is being processed."""
    if s.record.rows.shape[0] > 0:
        write_item(st, s, i)


@helper
def note_processed(cfg, st, s, slot):
    """Fill the rest of a batch's row once its output is processed; who finished was written last."""
    rows = s.record.rows
    row = s.batches.row[slot]
    if row >= rows.shape[0]:
        return
    rows[row, FIRST_FINISHED] = st["items"] - st["finished"]
    rows[row, NUM_FINISHED] = st["finished"]
    rows[row, FREE] = st["free"]
    rows[row, EVICTABLE] = st["evictable"]
    rows[row, LOCKED] = st["locked"]
    rows[row, ROWS_USED] = cfg["max_running_requests"] - st["rows_free"]
    rows[row, WAITING] = num_waiting(st)
    rows[row, PROCESSED] = 1
