"""Who is told that kernels are being compiled, or that Ray listens: nobody, unless a command line asks."""

from collections.abc import Callable

COMPILING = "compiling kernels, once after an installation or a change (some 20 s)"

tell: Callable[[str], None] | None = None
"""Called with a sentence when a process begins to compile, once, or starts a Ray."""
