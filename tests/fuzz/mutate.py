"""Changes to inputs: bits, stretches, numbers, names, repetitions."""

import random
import re

from tests.fuzz.corpus import PATHS

NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
NAME = re.compile(rb'"([^"\n]{0,80})"')

NUMBERS = (
    b"0", b"-0", b"-1", b"1", b"2", b"1e-300", b"0.1", b"-0.5", b"1.5", b"127", b"2147483647", b"2147483648",
    b"-2147483649", b"4294967296", b"9007199254740993", b"9223372036854775807", b"9223372036854775808", b"1e18",
    b"1e19", b"1e300", b"1e999", b"-1e999", b"nan", b"inf", b"-inf", b"NaN", b"Infinity", b"-Infinity", b"null",
    b"true", b"none", b"0x10", b"1_000", b"1000000000000000000", b"9" * 30, b"9" * 5000, b"1e", b"1.", b".5", b"+1",
    b"''", b'""', b"[]", b"{}", b'"x"', b"2026-01-01", b"12:30:00", b"99999999", b"100000000", b"1000000",
)  # fmt: skip
TOKENS = (
    b"\x00", b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\r", b"\n", b"\r\n",
    b"\t", b'"', b"'", b'"""', b"\\", b"\\u0000", b"\\ud800", b",", b",,", b";", b":", b"=", b"{", b"}", b"[", b"]",
    b"#", b"-", b"- ", b"...", b"---\n", b"&a ", b"*a", b"!!python/object:os.system ", b"|", b">", b"<<: ",
    b"\xe2\x80\xa8", b"\xc2\x85", b"\x0c", b"\x1b[31m", "\u0661\u0662".encode(), "\uff11".encode(), "\u200b".encode(),
    b"[" * 2000, b"{" * 2000, b'{"a":' * 2000, b"(" * 300, b"a" * 70_000, b" " * 5000, b"\n" * 3000, b"9" * 400,
)  # fmt: skip


def mutate(data: bytes, rng: random.Random, others: tuple[bytes, ...], *, paths: bool = False) -> bytes:
    """One to four changes; `others` lend stretches, `paths` replaces quoted text by names of files."""
    for _ in range(rng.choice((1, 1, 2, 2, 3, 4))):
        what = rng.randrange(13 if paths else 11)
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice((1, 1, 2, 5, 20, 200)))
        match what:
            case 0 if data:
                at = min(at, len(data) - 1)
                data = data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
            case 1:
                data = data[:at] + data[end:]
            case 2:
                data = data[:at] + data[at:end] * rng.choice((2, 2, 3, 50, 1000)) + data[end:]
            case 3:
                data = data[:at] + rng.choice(TOKENS) + data[at:]
            case 4:
                data = data[:at]
            case 5:
                other = rng.choice(others)
                cut = rng.randrange(len(other) + 1)
                data = data[:at] + other[cut:]
            case 6:
                data = data[:at] + rng.randbytes(rng.choice((1, 3, 30))) + data[at:]
            case 7:
                rows = data.split(b"\n")
                rng.shuffle(rows)
                data = b"\n".join(rows[: rng.randint(1, len(rows))])
            case 8 | 9 | 10:
                data = _replaced(data, NUMBER, rng.choice(NUMBERS), rng)
            case _:
                data = _replaced(data, NAME, b'"' + rng.choice(PATHS) + b'"', rng)
    return data[:400_000]


def _replaced(data: bytes, pattern: re.Pattern[bytes], new: bytes, rng: random.Random) -> bytes:
    found = list(pattern.finditer(data))
    if not found:
        return data
    match = rng.choice(found)
    return data[: match.start()] + new + data[match.end() :]
