"""Logs of a home with one entry per line; a log that has grown too long becomes ``NAME.old``."""

from __future__ import annotations

import os

from headway import ownership

_OLD = ".old"


def append(home: str, name: str, line: bytes, *, max_bytes: int) -> None:
    """Add a line; a log that has grown too long is put aside, and the one before it goes."""
    path = os.path.join(home, name)
    ownership.make_home(home)  # with a server the home need not exist
    descriptor = ownership.create(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(descriptor, line)
        written = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    # Another process may have put it aside in the same moment; then this is the new one.
    if written.st_size > max_bytes and os.path.samestat(written, os.stat(path)):
        os.rename(path, path + _OLD)


def newest_first(home: str, name: str) -> list[str]:
    """All lines that are still there."""
    lines: list[str] = []
    for suffix in (_OLD, ""):
        path = os.path.join(home, name + suffix)
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                lines += file
        except OSError:  # it does not exist, or this user may not read it
            continue
    return lines[::-1]
