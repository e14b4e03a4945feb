"""Commands that ran under ``headway run``: a line each in ``finished.log`` in the home.

For people who look one up after its end, and for estimates. A full log becomes
``finished.log.old``, in the place of the one before, so the two together are bounded.
"""

from __future__ import annotations

import os

from headway import bounded_log, keys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

FILE_NAME = "finished.log"
_MAX_BYTES = 128 << 10
_FIELDS = 7
# Programs change: so many of the last holds count.
_MANY = 50


class Finished:
    """One command that is over."""

    __slots__ = ("code", "command", "held_seconds", "id", "keys", "since", "task")

    def __init__(  # noqa: PLR0917 - a row
        self,
        id: str,  # noqa: A002
        since: float,
        held_seconds: float,
        code: int,
        keys: tuple[str, ...],
        task: str | None,
        command: str,
    ) -> None:
        self.id, self.since, self.held_seconds, self.code = id, since, held_seconds, code
        self.keys, self.task, self.command = keys, task, command


def record(home: str, one: Finished) -> None:
    """Add a line. Plain text: whoever starts a command must not load anything for its end."""
    words = (
        *(one.id, f"{one.since:.3f}", f"{one.held_seconds:.3f}", str(one.code)),
        *(" ".join(one.keys), one.task or "", one.command),
    )
    line = "\t".join(_plain(word) for word in words) + "\n"
    bounded_log.append(home, FILE_NAME, line.encode(errors="replace"), max_bytes=_MAX_BYTES)


def _plain(word: str) -> str:
    return word.replace("\t", " ").replace("\n", " ")


def read(home: str) -> list[Finished]:
    """All that are still known, the newest first. A line that cannot be read is passed over."""
    lines = bounded_log.newest_first(home, FILE_NAME)
    return [one for one in map(_parse, lines) if one is not None]


def _parse(line: str) -> Finished | None:
    words = line.rstrip("\n").split("\t")
    if len(words) != _FIELDS:
        return None
    ticket_id, since, held, code, names, task, command = words
    try:
        numbers = float(since), float(held), int(code)
    except ValueError:
        return None
    return Finished(ticket_id, *numbers, tuple(names.split(" ")), task or None, command)


def program_of(command: str) -> str:
    """The program of a holder's command line, if it is one of ``headway run``."""
    words = command.removeprefix("headway run ").split(" ")
    return os.path.basename(words[0]) if command.startswith("headway run ") else ""


class Holds:
    """How long each program held each key, lately; read again when there is more."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._seen: tuple[int, int] | None = None
        self._lengths: dict[tuple[str, str], list[float]] = {}

    def of(self, key: str, program: str) -> Sequence[float]:
        """The lengths of a program's holds; of any program's, without one."""
        return self._lengths.get((key, program), ())

    def refresh(self) -> None:
        """See what has ended since the last look."""
        try:
            found = os.stat(os.path.join(self._home, FILE_NAME))
        except OSError:
            return
        if self._seen == (found.st_size, found.st_mtime_ns):
            return
        self._seen, self._lengths = (found.st_size, found.st_mtime_ns), {}
        for one in read(self._home):
            program = program_of(one.command)
            for key in keys.path(one.keys):
                for name in {program, ""}:
                    lengths = self._lengths.setdefault((key, name), [])
                    if len(lengths) < _MANY:
                        lengths.append(one.held_seconds)
