"""A Ray that a sweep starts answers only to that sweep.

Its ports are open on every network interface whatever it is told, and who may call it may run programs: so every call
needs a token, which only the sweep and its workers know. Ray reads its settings when it is imported: this comes before.
"""

import os
import re
import sys
from importlib.metadata import version
from secrets import token_hex

from fastsim import _notice
from fastsim.errors import InputError

TOKENS_SINCE, BY_DEFAULT_SINCE = (2, 52), (2, 59)
"""The first releases of Ray in which a call can need a token, and in which it does unless told otherwise."""
OPEN = (
    "note: while the sweep runs, Ray listens on all network interfaces of this machine; it answers only to a token "
    "that is not shown, and does not encrypt"
)


def lock_up() -> None:
    """Have a Ray that this process is about to start ask for a token; nothing, where a cluster is to be joined.

    Raises
    ------
    InputError
        When this Ray knows no tokens, or was told not to ask for them.
    """
    ray = sys.modules.get("ray")
    if os.environ.get("RAY_ADDRESS") or (ray is not None and ray.is_initialized()):
        return
    here = version("ray")
    release = tuple(int(number) for number in re.findall(r"\d+", here)[:2])
    if release < TOKENS_SINCE:
        raise InputError(
            f"--backend ray: Ray {here} knows no tokens, so whoever reaches this machine could run programs through "
            f"it, but at least {'.'.join(map(str, TOKENS_SINCE))} was expected (pip install -U 'fastsim-llm[ray]'), "
            "or RAY_ADDRESS of a cluster"
        )
    mode = os.environ.get("RAY_AUTH_MODE")
    if ray is None:
        os.environ["RAY_AUTH_MODE"] = "token"
        if not os.environ.get("RAY_AUTH_TOKEN"):
            os.environ["RAY_AUTH_TOKEN"] = token_hex(32)
    elif mode != "token" and (mode is not None or release < BY_DEFAULT_SINCE):
        raise InputError(
            f"--backend ray: Ray was imported with RAY_AUTH_MODE = {mode or 'none'}, but token was expected: "
            "whoever reaches this machine could run programs through it"
        )
    if _notice.tell is not None:
        _notice.tell(OPEN)
