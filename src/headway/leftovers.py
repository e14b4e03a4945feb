"""What is still running of an attempt when everybody who guarded it was killed."""

from __future__ import annotations

import os
import signal
import time

_INSIST_SECONDS = 0.02


def end(**environ: str) -> int:
    """Kill every process that was started with these variables, until none is left; how many."""
    marks = {os.fsencode(f"{name}={value}") for name, value in environ.items()}
    killed: set[int] = set()
    while found := [pid for pid in _processes() if marks <= _environment(pid)]:
        for pid in found:
            killed.add(pid)
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
        time.sleep(_INSIST_SECONDS)
    return len(killed)


def _processes() -> list[int]:
    try:
        names = os.listdir("/proc")
    except OSError:  # a system without it: then only what the supervisor knew was ended
        return []
    return [int(name) for name in names if name.isdecimal() and int(name) != os.getpid()]


def _environment(pid: int) -> set[bytes]:
    """What a process was started with; nothing for one that has ended or is another user's."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return set(file.read().split(b"\0"))
    except OSError:
        return set()
