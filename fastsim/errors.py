"""The errors fastsim raises on purpose."""


class FastsimError(Exception):
    """Base of all errors raised on purpose. The command line prints the message and exits with `exit_code`."""

    exit_code = 1


class InputError(FastsimError):
    """Bad input: one sentence that names file, key, value and what was expected."""

    exit_code = 2


class WorkError(FastsimError):
    """The work itself failed, or a check did not hold."""

    exit_code = 1
