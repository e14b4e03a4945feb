"""What the machine knows about other processes, for messages and for watching them."""

from __future__ import annotations

import errno
import os
import sys

from headway import plain_text

MAX_COMMAND_LENGTH = 200
# SQLite opens so many at once, and does not say why it could not.
_FILES_AT_ONCE = 4


def pid_namespace() -> int:
    """A number that two processes share if they see each other under the same pids."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def lack_of_files(error: Exception | None = None) -> str:
    """What to say if no more files can be opened, by this error or by trial; else nothing."""
    if error is None:
        error = _try_to_open(_FILES_AT_ONCE)
    codes = (errno.EMFILE, errno.ENFILE)
    # A failed import keeps only the words.
    if getattr(error, "errno", 0) not in codes and os.strerror(errno.EMFILE) not in str(error):
        return ""
    limit = os.sysconf("SC_OPEN_MAX")  # what loads nothing: that would need a file
    return f"too many files are open: the limit is {limit}; raise it with ulimit -n"


def _try_to_open(count: int) -> OSError | None:
    opened: list[int] = []
    try:
        for _ in range(count):
            opened.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))  # noqa: PERF401
    except OSError as error:
        return error
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return None


def own_command() -> str:
    """The command line of this process, shortened, on one line."""
    words = [sys.argv[0] or "python", *sys.argv[1:]] if hasattr(sys, "argv") else ["python"]
    return " ".join(words).replace("\n", " ")[:MAX_COMMAND_LENGTH]


def describe(pid: int) -> str:
    """``pid 42 (python worker.py, stopped)``, as far as that can be found out."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(MAX_COMMAND_LENGTH).decode(errors="replace")
            command = plain_text.one_line(words.replace("\0", " "))
        with open(f"/proc/{pid}/stat", "rb") as file:
            state = file.read().rpartition(b")")[2].split()[0]
    except (OSError, IndexError):
        return f"pid {pid}"
    return f"pid {pid} ({command}{', stopped' if state in b'Tt' else ''})"


def ancestors(pid: int, known: dict[int, int] | None = None) -> list[int]:
    """The processes that one descends from, the nearest first, without the first of all.

    What is found out about parents is kept in ``known``, for the next question.
    """
    found: list[int] = []
    parents = {} if known is None else known
    while pid > 1:
        if pid not in parents:
            parents[pid] = _parent(pid)
        pid = parents[pid]
        if pid <= 1 or pid in found:
            break
        found.append(pid)
    return found


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        if os.path.exists("/proc/self/stat"):
            return 0
    import psutil  # noqa: PLC0415 - where there is no /proc

    try:
        return psutil.Process(pid).ppid()
    except psutil.Error:
        return 0


def lock_owners(path: str) -> list[int]:
    """The processes that hold a kernel lock on a file, where the kernel tells."""
    try:
        wanted = os.stat(path)
        with open("/proc/locks", encoding="ascii") as file:
            rows = [line.split() for line in file]
    except OSError:
        return []
    device = f"{os.major(wanted.st_dev):02x}:{os.minor(wanted.st_dev):02x}:{wanted.st_ino}"
    return sorted({int(row[4]) for row in rows if device in row and row[1] != "->"} - {os.getpid()})
