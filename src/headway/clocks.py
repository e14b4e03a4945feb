"""The clock that arrivals are told by: it runs while the machine sleeps, and nobody can set it.

People are told moments by the clock on the wall instead.
"""

from __future__ import annotations

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_seconds() -> float:
    """The time since the machine was started."""
    return time.clock_gettime(_CLOCK)


def boot_microseconds() -> int:
    """The same as arrivals have it."""
    return int(boot_seconds() * 1e6)


def time_of_day(moment: float) -> str:
    """A moment by the clock on the wall, with its date if that is not today."""
    local, today = time.localtime(moment), time.localtime()
    return time.strftime("%H:%M:%S" if local[:3] == today[:3] else "%Y-%m-%d %H:%M:%S", local)


def boot_name() -> str:
    """Tells this start of the machine from every other one."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:  # as near as one can tell without
        return f"{(time.time() - boot_seconds()) / 600:.0f}"
