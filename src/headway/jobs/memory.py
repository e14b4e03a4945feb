"""How much memory a new agent would find: the machine's, or its container's if that is less."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from headway import sizes

if TYPE_CHECKING:
    from collections.abc import Callable

_ROOT = "/sys/fs/cgroup"
_UNLIMITED = 1 << 60


class Reserve:
    """Memory that shall stay free whatever is started."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._is_short = say, False

    def is_kept(self, least: int | None) -> bool:
        """Whether so much is free; said once if not."""
        if least is None:
            return True
        free = free_bytes()
        if free < least and not self._is_short:
            self._say(
                f"watchdog.min_free_memory: no new job starts, {sizes.shown(free)} are free"
                f" and {sizes.shown(least)} shall stay"
            )
        self._is_short = free < least
        return not self._is_short


def free_bytes() -> int:
    """Memory that can be used without anybody being killed for it."""
    import psutil  # noqa: PLC0415

    return min([psutil.virtual_memory().available, *_left_in_containers()])


def _left_in_containers() -> list[int]:
    """What the limits of the control groups around this process leave."""
    left = []
    for directory, limit_name, use_name in _groups():
        limit = _number(os.path.join(directory, limit_name))
        used = _number(os.path.join(directory, use_name))
        if limit is not None and used is not None and limit < _UNLIMITED:
            left.append(max(0, limit - used + _reclaimable(directory)))
    return left


def _groups() -> list[tuple[str, str, str]]:
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return []
    groups = []
    for _, controllers, path in lines:
        if not controllers:
            names = ("memory.max", "memory.current")
            groups += [(directory, *names) for directory in _upwards(_ROOT, path)]
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
            root = os.path.join(_ROOT, "memory")
            groups += [(directory, *names) for directory in _upwards(root, path)]
    return groups


def _upwards(root: str, path: str) -> list[str]:
    parts = [part for part in path.split("/") if part and part != ".."]
    return [os.path.join(root, *parts[:count]) for count in range(len(parts), -1, -1)]


def _number(path: str) -> int | None:
    try:
        with open(path, encoding="ascii") as file:
            text = file.read().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def _reclaimable(directory: str) -> int:
    """Cached files count as used, but make way when memory is wanted."""
    try:
        with open(os.path.join(directory, "memory.stat"), encoding="ascii") as file:
            facts = dict(line.split() for line in file)
    except (OSError, ValueError):
        return 0
    return int(facts.get("inactive_file", facts.get("total_inactive_file", 0)))
