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

from headway import bounded_log
from headway.stores.processes import own_command
from headway.views import HolderView, LeaseView

FILE_NAME = "releases.log"
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
    line = json.dumps(asdict(release)).encode() + b"\n"
    bounded_log.append(home, FILE_NAME, line, max_bytes=_MAX_BYTES)


def read(home: str) -> list[Release]:
    """All that are still known, the newest first. A line that cannot be read is passed over."""
    lines = bounded_log.newest_first(home, FILE_NAME)
    return [release for release in map(_parse, lines) if release is not None]


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
