"""Who this machine is among those of a fleet: host names and paths alone do not tell.

Containers made from one image often have the same host name and the same home path.
"""

from __future__ import annotations

import functools
import hashlib
import os

from headway import clocks
from headway.stores.processes import pid_namespace


@functools.cache
def machine_name() -> str:
    """Tells this machine, or container, from others that may have the same host name."""
    return _short(f"{clocks.boot_name()} {pid_namespace()}")


def board_name(home: str) -> str:
    """Tells the board of this home from that of another machine or container at the same path."""
    try:
        found = os.stat(home)
    except OSError:  # then it has none
        return f"{machine_name()} {home}"
    return _short(f"{clocks.boot_name()} {found.st_dev} {found.st_ino}")


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:6]
