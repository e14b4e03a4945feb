"""The place of a home: its directory, and the file system and the disk that it lies on."""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import stat
from typing import TYPE_CHECKING

from headway import config
from headway.cli import mounts, trials
from headway.cli.diagnosis import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

_LITTLE_BYTES, _TOO_LITTLE_BYTES = 200 << 20, 4 << 20
_OTHERS_MAY_WRITE, _OTHERS_MAY_LOOK = 0o022, 0o055


class Place:
    """Looks at the place of one home, whether or not the home is there."""

    def __init__(self, home: str) -> None:
        self._home, self._ground = home, _nearest_directory(home)

    def directory(self) -> Iterator[Finding]:
        """Whether it is there, and yours alone."""
        source = "HEADWAY_HOME" if os.environ.get("HEADWAY_HOME") else "the default"
        shown, quoted = f"{self._home} ({source})", shlex.quote(self._home)
        try:
            found = os.stat(self._home)
        except FileNotFoundError:
            yield from self._missing(shown)
            return
        except NotADirectoryError:
            text = f"{shown} cannot be: a part of its path is not a directory"
            yield Finding("problem", "home", text, "set HEADWAY_HOME to another place")
            return
        if not stat.S_ISDIR(found.st_mode):
            fix = f"move it away, or set HEADWAY_HOME: mv {quoted} {quoted}.old"
            yield Finding("problem", "home", f"{shown} is not a directory", fix)
            return
        mode = stat.S_IMODE(found.st_mode)
        fix = f"chmod 700 {quoted}"
        if found.st_uid != os.geteuid():
            text = f"{shown} belongs to {_person(found.st_uid)}, you are {_person(os.geteuid())}"
            yield Finding("problem", "home", text, f"sudo chown -R {os.geteuid()} {quoted}")
        elif not os.access(self._home, os.R_OK | os.W_OK | os.X_OK):
            yield Finding("problem", "home", f"{shown} has mode {mode:04o}: not even you", fix)
        elif mode & _OTHERS_MAY_WRITE:
            text = f"{shown} has mode {mode:04o}: others can write there"
            yield Finding("problem", "home", text, fix)
        elif mode & _OTHERS_MAY_LOOK:
            text = f"{shown} has mode {mode:04o}: others can see your tasks and commands"
            yield Finding("warning", "home", text, fix)
        else:
            yield Finding("ok", "home", f"{shown}, mode {mode:04o}, yours")
        yield from self._strangers()

    def _missing(self, shown: str) -> Iterator[Finding]:
        if os.path.islink(self._home):
            text = f"{shown} is a link to {os.readlink(self._home)}, which is not there"
            fix = f"mkdir -m 700 {shlex.quote(os.path.realpath(self._home))}"
            yield Finding("problem", "home", text, fix)
        elif os.access(self._ground, os.W_OK | os.X_OK):
            text = f"{shown} is not there yet: the first command that needs it makes it"
            yield Finding("ok", "home", text)
        else:
            text = f"{shown} is not there and cannot be made: {self._ground} is not yours to write"
            yield Finding("problem", "home", text, "set HEADWAY_HOME to a directory of your own")

    def _strangers(self) -> Iterator[Finding]:
        """Files of another user, as ``sudo headway`` leaves them."""
        for name in ("slots.db", "slots.lock", "live", config.FILE_NAME, "jobs.db", "logs"):
            path = os.path.join(self._home, name)
            if os.path.exists(path) and os.stat(path).st_uid != os.stat(self._home).st_uid:
                fix = f"sudo chown -R {os.geteuid()} {shlex.quote(self._home)}"
                text = f"{name} belongs to {_person(os.stat(path).st_uid)}, and the home does not"
                yield Finding("problem", "home", text, fix)

    def file_system(self) -> Iterator[Finding]:
        """Whether locks hold there."""
        kind = mounts.kind_at(self._ground)
        doubt = mounts.doubt(kind)
        if doubt:
            fix = "set HEADWAY_HOME to a directory on a disk of this machine"
            text = f"{doubt}: locks may not hold there, and a home is for one machine"
            yield Finding("warning", "file system", text, fix)
        else:
            yield Finding("ok", "file system", kind or "unknown here")

    def space(self) -> Iterator[Finding]:
        """Whether there is room to write."""
        free = shutil.disk_usage(self._ground).free
        shown, fix = f"{_size(free)} free", "make room on the disk of the home"
        if free < _TOO_LITTLE_BYTES:
            yield Finding("problem", "space", shown, fix)
        elif free < _LITTLE_BYTES:
            yield Finding("warning", "space", shown, fix)
        else:
            yield Finding("ok", "space", shown)

    def trial(self) -> Iterator[Finding]:
        """Whether what a home needs works there."""
        if not os.access(self._ground, os.W_OK | os.X_OK):
            return  # said already
        works = []
        for name, trouble in trials.try_all(self._ground):
            if not trouble:
                works.append(name)
                continue
            waiting = name == "sockets"
            text = f"{name} failed there: {trouble}"
            if waiting:
                text += "; who waits then looks every 250 ms instead of being woken"
            fix = "set HEADWAY_HOME to a directory on a disk of this machine"
            yield Finding("warning" if waiting else "problem", "trial", text, fix)
        if works:
            yield Finding("ok", "trial", f"tried and found to work: {', '.join(works)}")


def _nearest_directory(path: str) -> str:
    """The path itself, or what is there of the way to it."""
    while not os.path.lexists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path if os.path.isdir(path) else os.path.dirname(path)


def _person(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _size(count: float) -> str:
    for unit in ("bytes", "KB", "MB", "GB"):
        if count < 1024:  # noqa: PLR2004
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} TB"
