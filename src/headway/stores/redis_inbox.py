"""How a process hears from a Redis server: a list of its own, and a read that waits for it.

A message stays in the list until it is read, so none is lost while the connection lasts. The
read is left waiting from one look to the next: nothing is asked for again and again. It ends
by itself as often as the process is heard, and sooner while somebody waits, so that a connection
that only seems to last is found out.
"""

from __future__ import annotations

import _thread
import os
import select
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from redis.exceptions import RedisError

from headway.stores.base import StoreClosed
from headway.stores.redis_rows import unpacked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from headway.stores.redis_link import Link

_PAUSE_SECONDS = 0.25
_MOST_MESSAGES = 1000
# The end of a read may be late by so much.
_SLACK_SECONDS = 1.0
# While somebody waits a read ends after the one, and who has heard nothing for the other looks
# for lost messages in another way.
_READ_SECONDS, _SILENCE_SECONDS = 0.75, 0.95


class Inbox:
    """The messages of one holder. One thread receives at a time; others may wait for the bell."""

    def __init__(self, link: Link, holder: str, silence_seconds: float) -> None:
        self._link, self._silence_seconds = link, silence_seconds
        self._list = link.tag + f":inbox:{holder}".encode()
        self._connection: Any = None
        # Whether a read waits. Who has got its message does not wait until that was asked for anew.
        self._is_asking = False
        # When a connection that lasts would have been heard at the latest.
        self._heard_by = 0.0
        # Since when somebody waits and has heard nothing; and when one last did wait.
        self._silent_since = self._waited_at = 0.0
        # Until when the read of a connection that broke may wait on, and take a message with it.
        self._doubtful_until: float | None = None
        self._bell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._alarm = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # Re-entrant: a signal handler may interrupt whoever waits here.
        self._mutex = _thread.RLock()
        self._users, self._is_closed, self._descriptors = 0, False, [*self._bell, *self._alarm]
        # Whether messages may have been lost since the last look; and whether a read broke, as it
        # does when the server becomes a replica.
        self.has_gap, self.has_broken = True, False

    def receive(self, seconds: float) -> list[list[Any]]:
        """The messages that come within this time, as soon as there are some."""
        with self._used():
            try:
                if self._connection is None:
                    self._connect(seconds)
                return [unpacked(message) for message in self._messages(seconds)]
            except (RedisError, OSError):
                self._hang_up()
                time.sleep(min(seconds, _PAUSE_SECONDS))
                return []
            except BaseException:  # Ctrl-C: what was read is lost
                self._hang_up()
                raise

    def _messages(self, seconds: float) -> list[bytes]:
        """One, for who waits for it and goes on at once; all of them for who only looks."""
        found = []
        if self._is_asking or seconds > 0:
            if not self._is_asking:
                self._ask(seconds)
            if not self._hears_within(seconds):
                return []
            found = self._read()
            if seconds > 0:
                return found
        self._connection.send_command(b"LPOP", self._list, _MOST_MESSAGES)
        found += self._connection.read_response() or ()
        self._ask(seconds)
        return found

    def _hears_within(self, seconds: float) -> bool:
        """Whether there is something to read; who has waited too long for it sees a gap."""
        now = time.monotonic()
        if now - self._waited_at > _PAUSE_SECONDS:  # nobody did until now
            self._silent_since = now
        left = self._silent_since + _SILENCE_SECONDS - now
        is_heard = self._is_there(self._connection, self._bell[0], min(seconds, left))
        if seconds > 0:
            now = self._waited_at = time.monotonic()
            if is_heard:
                self._silent_since = now
            elif now >= self._silent_since + _SILENCE_SECONDS:
                self.has_gap, self._silent_since = True, now
        return is_heard

    def _read(self) -> list[bytes]:
        """The message that was asked for, if there is one and not only the end of a read."""
        if time.monotonic() > self._heard_by:
            raise OSError("nothing was heard for too long")
        first, self._is_asking = self._connection.read_response(), False
        found = [] if first is None else [first[1]]
        if self._doubtful_until is not None and time.monotonic() > self._doubtful_until:
            self.has_gap, self._doubtful_until = True, None
        return found

    def is_ringing(self, seconds: float) -> bool:
        """Wait for a message without taking it; whether there may be one."""
        with self._used():
            connection = self._connection
            if connection is None:
                self._is_there(None, self._alarm[0], min(seconds, _PAUSE_SECONDS))
                return True
            return not self._is_asking or self._is_there(connection, self._alarm[0], seconds)

    def _is_there(self, connection: Any, bell: int, seconds: float) -> bool:
        """Whether there is something to read, or should have been by now."""
        poll = select.poll()  # it takes descriptors of any height
        poll.register(bell, select.POLLIN)
        sock = connection and connection._sock  # noqa: SLF001
        descriptor = sock.fileno() if sock else -1
        if descriptor >= 0:
            poll.register(descriptor, select.POLLIN)
        ready = [each for each, _ in poll.poll(max(0.0, seconds) * 1000)]
        if bell in ready:
            os.read(bell, 4096)
        return descriptor in ready or time.monotonic() > self._heard_by

    def _connect(self, seconds: float) -> None:
        connection = self._link.new_connection()
        connection.connect()
        self._connection, self.has_gap = connection, True
        self._ask(seconds)

    def _ask(self, seconds: float) -> None:
        """Begin a read: a long one, unless somebody waits for what it brings."""
        lasts = min(self._silence_seconds, _READ_SECONDS) if seconds > 0 else self._silence_seconds
        self._connection.send_command(b"BLPOP", self._list, f"{lasts:.3f}")
        # As for a long one: a server that is slow for a moment need not see everybody come anew.
        self._heard_by = time.monotonic() + self._silence_seconds + _SLACK_SECONDS
        self._is_asking = True

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        self.has_gap, self._is_asking = True, False
        if connection is not None:
            self.has_broken = True
            self._doubtful_until = time.monotonic() + self._silence_seconds + _SLACK_SECONDS
            connection.disconnect()

    def interrupt(self) -> None:
        """Make whoever waits return."""
        with self._mutex:
            if self._is_closed:
                return
            for _, bell in (self._bell, self._alarm):
                try:
                    os.write(bell, b"!")
                except BlockingIOError:
                    pass  # it has been rung

    @contextmanager
    def _used(self) -> Iterator[None]:
        with self._mutex:
            if self._is_closed:
                raise StoreClosed
            self._users += 1
        try:
            yield
        finally:
            with self._mutex:
                self._users -= 1
                if self._is_closed and not self._users:
                    self.let_go()

    def close(self) -> None:
        """Hear no more; who still listens is interrupted, and lets go of it at last."""
        self.interrupt()
        with self._mutex:
            self._is_closed = True
            if not self._users:
                self.let_go()

    def let_go(self) -> None:
        """Close everything, also as a forked child, where it is the parent's."""
        self._hang_up()
        while self._descriptors:
            os.close(self._descriptors.pop())
