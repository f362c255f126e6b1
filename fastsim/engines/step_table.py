"""Reading the table of step times that a record has (see `step_fields`)."""

from fastsim._jit import inlined


@inlined
def find_knot(record, tokens, knot):
    """The last knot at or below so many tokens, or the first: from a guess, which is nearly always right."""
    last = record["table_knots"] - 1
    while knot < last and record["table_tokens"][knot + 1] <= tokens:
        knot += 1
    while knot > 0 and record["table_tokens"][knot] > tokens:
        knot -= 1
    return knot


@inlined
def us_from_knot(record, tokens, knot):
    """Microseconds that the table gives for so many tokens, which lie at or beyond `knot`; none take no time."""
    if tokens <= 0:
        return 0.0
    beyond = max(tokens - record["table_tokens"][knot], 0)
    return record["table_us"][knot] + record["table_us_per_token"][knot] * beyond


@inlined
def table_us(record, tokens):
    """Microseconds that the table gives for so many tokens."""
    return us_from_knot(record, tokens, find_knot(record, tokens, 0))


@inlined
def graph_tokens(record, tokens):
    """Tokens that a step of decodes computes: those of the CUDA graph that holds it, if one does.

    vLLM captures 1, 2, 4, then multiples of 8 up to 256, then of 16, up to `max_cudagraph_capture_size`.
    """
    if tokens <= 2:
        return tokens
    if tokens <= 4:
        padded = 4
    elif tokens <= 256:
        padded = (tokens + 7) // 8 * 8
    else:
        padded = (tokens + 15) // 16 * 16
    return padded if padded <= record["max_cudagraph_capture_size"] else tokens
