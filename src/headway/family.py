"""The processes that descend from this one: adopting, hearing of and ending them.

A tool that an agent starts may move into a session of its own, and its parent may
end before it. Process groups do not reach it then; but where the system can make
this process the parent of such orphans, it stays in the family.

A worker that somebody in it has started does not belong to it: it serves everyone, and
neither ends with them nor keeps their slots.
"""

from __future__ import annotations

import os
import sys
import time

from headway.lean import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    import psutil

# What the system calls a process that stands apart: the name of the file it was started by.
APART = "headway-worker"
_PR_SET_CHILD_SUBREAPER = 36
_INSIST_SECONDS = 0.02


def adopt_orphans() -> None:
    """Become the parent of what descendants leave behind, where the system can do that."""
    if sys.platform == "linux":
        import _ctypes  # noqa: PLC0415 - ctypes itself takes twice as long to load

        prctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]
        _ctypes.call_function(prctl, (_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))


def news() -> Iterator[tuple[int, int]]:
    """Children that ended, stopped or went on, with their status; pid 0 when none is left."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
        except ChildProcessError:
            yield 0, 0
            return
        if pid == 0:
            left = children()
            if left and all(map(_stands_apart, left)):
                yield 0, 0
            return
        yield pid, status


def children() -> list[int]:
    """The pids of all children; none where the system does not tell."""
    found: list[int] = []
    try:
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/children", encoding="ascii") as file:
                found += map(int, file.read().split())
    except OSError:
        return []
    return found


def exit_code(status: int) -> int:
    """How a process ended, as a shell says it: its code, or 128 and the signal."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def how_it_ended(code: int | None) -> str:
    """An exit code in words."""
    import signal as signals  # noqa: PLC0415 - the enum takes long to load

    if code is not None and code > 128:  # noqa: PLR2004 - as a shell has it
        try:
            return f"ended by {signals.Signals(code - 128).name}"
        except ValueError:
            pass
    return f"exit code {code}"


def members(of: int | None = None, *, but: frozenset[int] = frozenset()) -> list[psutil.Process]:
    """All living descendants, of this process or another, without some and what is below those."""
    import psutil  # noqa: PLC0415 - takes longer to load than most commands run

    try:
        descendants = psutil.Process(of).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    found, left_out = [], set(but)
    for process in descendants:  # parents come before their children
        try:
            if process.ppid() in left_out or process.pid in but or _stands_apart(process.pid):
                left_out.add(process.pid)
            elif process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def tell(signum: int, *, but: frozenset[int] = frozenset()) -> int:
    """Send all of them a signal; how many there were."""
    import psutil  # noqa: PLC0415

    reached = 0
    for process in members(but=but):
        try:
            process.send_signal(signum)
            reached += 1
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            pass  # gone, or another user's by now: sudo
    return reached


def cpu_seconds(of: int | None = None) -> float:
    """What the whole tree has used so far, the ended children included."""
    import psutil  # noqa: PLC0415

    total = 0.0
    for process in members(of):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def end() -> None:
    """Kill all of them, and return when none is left."""
    while not any(pid == 0 for pid, _ in news()):
        tell(signal.SIGKILL)
        time.sleep(_INSIST_SECONDS)


def _stands_apart(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().rstrip("\n") == APART
    except OSError:
        return False
