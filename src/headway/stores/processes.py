"""What the machine knows about other processes, for messages and for watching them."""

from __future__ import annotations

import os
import sys

MAX_COMMAND_LENGTH = 200


def pid_namespace() -> int:
    """A number that two processes share if they see each other under the same pids."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def own_command() -> str:
    """The command line of this process, shortened, on one line."""
    words = [sys.argv[0] or "python", *sys.argv[1:]] if hasattr(sys, "argv") else ["python"]
    return " ".join(words).replace("\n", " ")[:MAX_COMMAND_LENGTH]


def describe(pid: int) -> str:
    """``pid 42 (python worker.py, stopped)``, as far as that can be found out."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(MAX_COMMAND_LENGTH).decode(errors="replace")
            command = words.replace("\0", " ").replace("\n", " ")
        with open(f"/proc/{pid}/stat", "rb") as file:
            state = file.read().rpartition(b")")[2].split()[0]
    except (OSError, IndexError):
        return f"pid {pid}"
    return f"pid {pid} ({command.strip()}{', stopped' if state in b'Tt' else ''})"


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
