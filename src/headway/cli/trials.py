"""Tries in a directory what a home needs of its file system: locks, sockets, shared memory."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import sqlite3
import sys
import tempfile
from typing import TYPE_CHECKING

from headway.stores.database import translate
from headway.stores.locks import taken

if TYPE_CHECKING:
    from collections.abc import Iterator

_PATIENCE_SECONDS = 1.0


def try_all(directory: str) -> Iterator[tuple[str, str]]:
    """Each thing that was tried, and why it does not work; empty if it does."""
    place = tempfile.mkdtemp(prefix="doctor-", dir=directory)
    try:
        for name, trial in (("locks", _locks), ("sockets", _sockets), ("SQLite", _database)):
            try:
                yield name, trial(place)
            except sqlite3.Error as error:
                meaning = translate(error, os.path.join(place, "slots.db"), _PATIENCE_SECONDS)
                yield name, getattr(meaning, "reason", str(meaning))
            except OSError as error:
                yield name, str(error)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _locks(place: str) -> str:
    """A lock keeps others out, and is gone with its descriptor."""
    path = os.path.join(place, "lock")
    holding = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    asking = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(holding, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_free(asking):
            return "two had the same lock at the same time"
    finally:
        os.close(holding)
        is_free = _is_free(asking)
        os.close(asking)
    return "" if is_free else "a lock stayed after its holder was gone"


def _is_free(descriptor: int) -> bool:
    is_free = taken(descriptor, fcntl.LOCK_EX)
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return is_free


def _sockets(place: str) -> str:
    """A datagram reaches a socket that lies here."""
    directory = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    # The path of a socket is limited to about 100 bytes, that of a home is not.
    short = f"/proc/self/fd/{directory}" if sys.platform == "linux" else place
    address = os.path.join(short, "sock")
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as near,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as far,
    ):
        try:
            near.bind(address)
            near.settimeout(5)
            far.sendto(b"hello", address)
            return "" if near.recv(16) == b"hello" else "a message arrived changed"
        finally:
            os.close(directory)


def _database(place: str) -> str:
    """SQLite's log needs memory that processes share through a file."""
    path = os.path.join(place, "slots.db")
    connection = sqlite3.connect(path, isolation_level=None, timeout=_PATIENCE_SECONDS)
    try:
        (mode,) = connection.execute("pragma journal_mode = wal").fetchone()
        connection.execute("create table trial (number)")
        connection.execute("insert into trial values (1)")
    finally:
        connection.close()
    return "" if mode == "wal" else "it cannot keep its write-ahead log there"
