"""What a home remembers of a server that may lose its data: ``fleet/NAME.json`` in the home.

One file for each server and namespace, with the limits and pauses that people set there and a
number that no fencing token has reached.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import msgspec

from headway import journal, ownership
from headway.limits import Line, Terms
from headway.stores.hand_set import HandSet

if TYPE_CHECKING:
    from collections.abc import Iterator

DIRECTORY = "fleet"
# Tokens grow by a million in a second. So the file is written for them once in an hour, and
# they leap by at most an hour when a server has lost its data.
TOKEN_LEAD = 3600 * 1_000_000
_LOCK_SECONDS, _LOCK_PAUSE_SECONDS = 1.0, 0.005


class _Row(msgspec.Struct):
    """What stands in the file."""

    store: str
    tokens_below: int
    limits: list[tuple[str, int | None, str, int | None]]
    paused: list[str]
    versions: dict[str, int]


class HomeRecord:
    """The file of one server and namespace, and what this process knows of it."""

    def __init__(self, home: str, store: str) -> None:
        digest = hashlib.sha256(store.encode()).hexdigest()[:16]
        self._home, self._store = home, store
        self.path = os.path.join(home, DIRECTORY, f"{digest}.json")
        self._is_read = self._is_warned = False
        self._hand_set, self._tokens_below = HandSet({}), 0
        # What stood in the file when it was last read.
        self._written = self._hand_set, self._tokens_below

    @property
    def hand_set(self) -> HandSet:
        """The limits and pauses that people set, as far as this home knows."""
        self._read_once()
        return self._hand_set

    def tokens(self) -> tuple[int, int]:
        """A token that was given, as nearly as is known; and a number that none has reached."""
        self._is_read = False  # others of this home may have written it since
        self._read_once()
        return max(0, self._tokens_below - TOKEN_LEAD), self._tokens_below

    def keep(self, hand_set: HandSet, *, is_own: bool = False) -> None:
        """Write down what this home did not know; if it was set here, a failure is logged."""
        merged = self.hand_set.merged(hand_set)
        if merged == self._hand_set or not (is_own or os.path.isdir(self._home)):
            return  # whoever only looks makes no home
        self._hand_set = merged
        error = self._write()
        if error and is_own:
            self._warn("cannot be written", error)

    def saw_token(self, token: int) -> None:
        """Before a token is used: what is written down is larger."""
        if token >= self._tokens_below and token >= self.tokens()[1]:
            self._tokens_below = token + TOKEN_LEAD
            self._write()

    def _read_once(self) -> None:
        if not self._is_read:
            self._is_read = True
            self._read()

    def _read(self) -> None:
        """Add what stands in the file; one that is damaged is written anew, from what is known."""
        self._written = HandSet({}), 0
        try:
            with open(self.path, "rb") as file:
                row = msgspec.json.decode(file.read(), type=_Row)
            terms = Terms([Line(*line) for line in row.limits], row.paused)
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            self._warn("cannot be read", error)
            return
        self._written = HandSet.of(terms, row.versions), row.tokens_below
        self._hand_set = self._hand_set.merged(self._written[0])
        self._tokens_below = max(self._tokens_below, row.tokens_below)

    def _write(self) -> OSError | None:
        """Write it; the answer is what kept it from that. A home may be read-only."""
        try:
            ownership.make_home(self._home)
            ownership.make_directory(os.path.dirname(self.path))
            with self._locked():
                self._read()  # another process may have written it
                if self._written != (self._hand_set, self._tokens_below):
                    self._replace()
        except OSError as error:
            return error
        return None

    def _replace(self) -> None:
        terms = self._hand_set.terms(Terms())
        row = _Row(
            store=self._store,
            tokens_below=self._tokens_below,
            limits=[
                (line.pattern, line.slots, line.source, line.requests_per_minute)
                for line in terms.lines
            ],
            paused=sorted(terms.paused),
            versions=self._hand_set.versions,
        )
        draft = f"{self.path}.new"  # one for all: whoever was killed leaves no other
        with suppress(FileNotFoundError):
            os.unlink(draft)  # one that was stopped must not go on writing into this one
        descriptor = ownership.create(draft, os.O_WRONLY | os.O_EXCL)
        with open(descriptor, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(row)) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, self.path)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes from writing; not for long, as one that was stopped may have it.

        Without the lock nothing is damaged, and what one of both has written may be lost.
        """
        directory = os.open(os.path.dirname(self.path), os.O_RDONLY | os.O_CLOEXEC)
        deadline = time.monotonic() + _LOCK_SECONDS
        try:
            while time.monotonic() < deadline:
                try:
                    fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    time.sleep(_LOCK_PAUSE_SECONDS)
            yield
        finally:
            os.close(directory)

    def _warn(self, problem: str, error: Exception) -> None:
        if not self._is_warned:
            self._is_warned = True
            journal.log().warning(
                "%s %s (%s): if %s loses its data, this home cannot restore its limits",
                self.path,
                problem,
                error,
                self._store,
            )
