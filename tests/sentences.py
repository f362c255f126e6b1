"""What every error that fastsim raises on purpose must look like."""

from collections.abc import Callable
from typing import Any

import pytest

from fastsim.errors import InputError


def bad_input(call: Callable[[], Any], *named: str) -> str:
    """The call fails with one sentence that names all of `named`."""
    with pytest.raises(InputError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    assert 10 < len(message) < 700, message
    assert ". " not in message, f"more than one sentence: {message}"
    assert caught.value.exit_code == 2
    for word in named:
        assert word in message, f"{word!r} is not named in: {message}"
    return message


def one_line_or_none(call: Callable[..., Any], *args: Any) -> None:
    """The call works, or fails with an error raised on purpose, of one line. Any other exception passes through."""
    message = ""
    try:
        call(*args)
    except InputError as error:
        message = str(error)
    assert "\n" not in message
