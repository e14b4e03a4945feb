"""Leases that were taken back by hand, in ``releases.log`` in the home: a line each, newest last.

For people who wonder later where a slot went. A full log becomes ``releases.log.old``,
in the place of the one before, so the two together are bounded.
"""

from __future__ import annotations

import json
import os
import pwd
import time
from dataclasses import asdict, dataclass

from headway.stores.processes import own_command
from headway.views import HolderView, LeaseView

FILE_NAME = "releases.log"
_OLD = ".old"
_MAX_BYTES = 128 << 10
_STANDARD_STREAMS = range(3)


@dataclass(frozen=True, slots=True)
class Releaser:
    """Who took a lease back: the user, and the process that did it for them."""

    user: str
    pid: int
    host: str
    terminal: str | None
    command: str
    task: str | None


@dataclass(frozen=True, slots=True)
class Release:
    """One lease that was taken from its holder, when, by whom and why."""

    lease: LeaseView
    released_at: float
    reason: str
    by: Releaser


def record(home: str, lease: LeaseView, *, reason: str, task: str | None) -> None:
    """Add a line for a lease that this process has just taken back, for the task it works on."""
    release = Release(lease, time.time(), reason, _me(task))
    path = os.path.join(home, FILE_NAME)
    line = json.dumps(asdict(release)).encode() + b"\n"
    os.makedirs(home, mode=0o700, exist_ok=True)  # on a server there need not be one
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, line)
        written = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    # Someone else may have put it aside in the same moment; then this is the new one.
    if written.st_size > _MAX_BYTES and os.path.samestat(written, os.stat(path)):
        os.rename(path, path + _OLD)


def read(home: str) -> list[Release]:
    """All that are still known, the newest first. A line that cannot be read is passed over."""
    lines: list[str] = []
    for suffix in (_OLD, ""):
        try:
            with open(
                os.path.join(home, FILE_NAME + suffix), encoding="utf-8", errors="replace"
            ) as file:
                lines += file
        except OSError:  # there is none; or it is not for us to read
            continue
    return [release for release in map(_parse, reversed(lines)) if release is not None]


def _parse(line: str) -> Release | None:
    try:
        found = json.loads(line)
        lease = found["lease"]
        holder, keys = HolderView(**lease.pop("holder")), tuple(lease.pop("keys"))
        return Release(
            lease=LeaseView(**lease, keys=keys, holder=holder),
            released_at=found["released_at"],
            reason=found["reason"],
            by=Releaser(**found["by"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _me(task: str | None) -> Releaser:
    return Releaser(
        user=_user(),
        pid=os.getpid(),
        host=os.uname().nodename,
        terminal=_terminal(),
        command=own_command(),
        task=task,
    )


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"user {os.getuid()}"


def _terminal() -> str | None:
    for stream in _STANDARD_STREAMS:
        try:
            return os.ttyname(stream)
        except OSError:
            continue
    return None
