"""Making a program's shared data ready, once, before several copies of it do so at once.

Run as a process of its own: it waits its turn for a lock file, and whoever comes later
finds the work done. The file says for which program that was, and for which data.
"""

from __future__ import annotations

import fcntl
import os
import subprocess


def is_warm(stamp: str, program: str) -> bool:
    """Whether this very program has made its data ready, and the data are still there."""
    try:
        with open(stamp, encoding="utf-8", errors="surrogateescape") as file:
            return _is_true(file.read(), program)
    except OSError:
        return False


def main(arguments: list[str]) -> None:
    """Run the command that makes the data ready, unless they are; it prints where, if need be."""
    stamp, data, program, *words = arguments
    os.makedirs(os.path.dirname(stamp), exist_ok=True)
    with open(stamp, "a+", encoding="utf-8", errors="surrogateescape") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        if _is_true(file.read(), program):
            return
        done = subprocess.run([program, *words], check=True, stdout=subprocess.PIPE)
        data = data or os.fsdecode(done.stdout).strip()
        file.seek(0)
        file.truncate()
        file.write(f"{_identity(program)}\n{data}\n")


def _is_true(text: str, program: str) -> bool:
    identity, _, data = text.rstrip("\n").partition("\n")
    return bool(data) and identity == _identity(program) and os.path.exists(data)


def _identity(program: str) -> str:
    """Differs after an update: another version may want to change the data first."""
    facts = os.stat(program)
    return f"{os.path.realpath(program)} {facts.st_mtime_ns} {facts.st_size}"
