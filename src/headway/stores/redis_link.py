"""The way to a Redis server: one script, a few connections, and what its errors mean."""

from __future__ import annotations

import hashlib
import os
import random
import re
import time
from typing import TYPE_CHECKING

import redis
from hiredis import pack_command
from redis.exceptions import (
    AskError,
    AuthenticationError,
    ClusterDownError,
    ConnectionError,  # noqa: A004 - the driver's name for it
    MasterDownError,
    MovedError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    TimeoutError,  # noqa: A004
    TryAgainError,
)

from headway.errors import ConfigError, StoreUnavailable
from headway.stores import shown
from headway.stores.base import StoreClosed
from headway.stores.locks import owned_lock
from headway.stores.patience import Patience

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeVar

    T = TypeVar("T")

# In this order: each uses what stands before it.
_SHORTCUTS = ("prelude", "clock", "shortcuts")
_RULES = (
    "rows",
    "header",
    "book",
    "lending",
    "admission",
    "pacing",
    "recovery",
    "operations",
    "holders",
    "looks",
    "answer",
)
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.02, 1.0
# One try gets so much time, though all of it may be over.
_LEAST_SECONDS = 0.01
# What may soon be otherwise: as the driver has names for it, and as a server says it, about a
# script if it is one before 7.
_TEMPORARY = (
    AskError,
    ClusterDownError,
    ConnectionError,
    MovedError,
    TimeoutError,
    OSError,
    MasterDownError,
    OutOfMemoryError,
    ReadOnlyError,
    TryAgainError,
)
_TEMPORARY_WORDS = re.compile(r"(^|: -)(BUSY|MASTERDOWN|MISCONF|NOREPLICAS|OOM|READONLY) ")


def script(**replaced: bytes) -> bytes:
    """The operations of the store, as the server runs them; parts may be replaced.

    The rules are in a function of their own: what has many names needs a large stack, and
    each call that a shortcut serves would pay for it.
    """

    def text(part: str) -> bytes:
        path = os.path.join(os.path.dirname(__file__), "lua", f"{part}.lua")
        if part in replaced:
            return replaced[part]
        with open(path, "rb") as file:
            return file.read()

    shortcuts, rules = map(text, _SHORTCUTS), map(text, _RULES)
    return b"\n".join([*shortcuts, b"return (function()", *rules, b"end)()"])


class Unreached(StoreUnavailable):
    """Nothing was asked of the server: it cannot have done anything."""


class _Again(Exception):  # noqa: N818 - not an error yet
    """It failed, and may not fail the next time."""

    def __init__(self, reason: Exception, *, is_reached: bool) -> None:
        super().__init__(str(reason))
        self.reason, self.is_reached = reason, is_reached


class Link:
    """A server, by its URL; every user has a connection of its own."""

    def __init__(
        self,
        url: str,
        namespace: str,
        *,
        timeout_seconds: float,
        password: str | None = None,
        text: bytes | None = None,
    ) -> None:
        secret = {} if password is None else {"password": password}
        self.name = shown(url, namespace)
        try:
            self._pool = redis.ConnectionPool.from_url(
                url,
                socket_timeout=timeout_seconds,
                socket_connect_timeout=timeout_seconds,
                client_name="headway",
                **secret,
            )
        except ValueError as error:
            raise ConfigError(f"store {self.name} cannot be used: {_reason(error)}") from None
        self._address = {
            name: value
            for name, value in self._pool.connection_kwargs.items()
            if name in {"host", "port"}
        }
        self.tag = f"{{headway:{namespace}}}".encode()
        self.patience = Patience(self.name, timeout_seconds)
        self._text = script() if text is None else text
        sha = hashlib.sha1(self._text, usedforsecurity=False).hexdigest().encode()
        self._beginning = b"EVALSHA", sha, b"1", self.tag

    def connect(self) -> Connection:
        """A connection, which is opened when it is first used."""
        return Connection(self, self.new_connection())

    def new_connection(self) -> Any:
        """One of the driver's own, which has no types; its pool would count all there ever were."""
        return self._pool.connection_class(**self._pool.connection_kwargs)

    def follow(self, moved: MovedError) -> None:
        """Of a cluster, another server has the namespace: go there from now on."""
        present = self._pool.connection_kwargs
        present.update(host=moved.host or present["host"], port=moved.port)

    def return_home(self) -> None:
        """Go to where the address leads."""
        self._pool.connection_kwargs.update(self._address)

    def run(self, connection: Any, words: Sequence[bytes]) -> Any:
        """Have the server run one operation."""
        try:
            command = pack_command((*self._beginning, *words))  # type: ignore[arg-type]
            connection.send_packed_command([command])
            return connection.read_response()
        except NoScriptError:
            connection.send_command(b"EVAL", self._text, 1, self.tag, *words)
            return connection.read_response()

    def deadline(self) -> float:
        """Until when a call that begins now may take."""
        try:
            return time.monotonic() + self.patience.left_seconds()
        except StoreUnavailable as error:
            raise self.unavailable(error.reason, is_reached=False) from None

    def unavailable(self, reason: object, *, is_reached: bool = True) -> StoreUnavailable:
        """What people are told."""
        return (StoreUnavailable if is_reached else Unreached)(self.name, str(reason))


class Connection:
    """One connection; one command at a time."""

    def __init__(self, link: Link, connection: Any) -> None:
        self._link, self._connection = link, connection
        self.lock = owned_lock()
        self.is_closed = False
        # Which server this is, and for how long it has surely forgotten nothing. Another one may
        # not know what the last one knew.
        self.server, self.uptime_seconds = "", 0
        # Whether that may be another one by now, though the connection has lasted.
        self.is_doubted = False
        # How often it was opened: what was said on an earlier one may still arrive.
        self.number = 0
        # Why whoever is at it now asks again.
        self._trouble = ""
        # Whether an answer may have been lost, with what it told of our tickets.
        self.has_gap = False

    def operate(self, words: Callable[[], Sequence[bytes]], deadline: float | None = None) -> Any:
        """Run one operation; it is tried again until the time for it is over."""
        work = self._link.run
        return self.patiently(lambda: work(self._connection, words()), deadline)

    def patiently(self, work: Callable[[], T], deadline: float | None = None) -> T:
        """Do something with the server, as often as it takes within the time for it."""
        if deadline is None:
            deadline = self._link.deadline()
        pause, is_reached = _FIRST_PAUSE_SECONDS, False
        while True:
            try:
                return self._in_turn(work, deadline)
            except _Again as again:
                trouble, is_reached = again, is_reached or again.is_reached
            except Unreached as error:
                raise self._link.unavailable(error.reason, is_reached=is_reached) from None
            left = deadline - time.monotonic()
            if left <= 0:
                self._link.patience.in_vain(str(trouble.reason))
                raise self._link.unavailable(
                    trouble.reason, is_reached=is_reached
                ) from trouble.reason
            # Others may have their turn: a server can refuse one thing and do another.
            time.sleep(min(left, pause * random.uniform(0.5, 1.0)))  # noqa: S311
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _in_turn(self, work: Callable[[], T], deadline: float) -> T:
        """Try it once, when no other thread is at it."""
        try:
            # Not with "with": another thread may wait for an answer as long as we may.
            if not self.lock.acquire(True, max(0.0, deadline - time.monotonic())):
                reason = "it does not answer another thread of this process"
                raise self._link.unavailable(self._trouble or reason, is_reached=False)
            return self._once(work, deadline)
        finally:
            # Nothing may come before it: Ctrl-C strikes between two calls.
            try:
                self.lock.release()
            except RuntimeError:  # it did so before the lock was ours
                pass

    def _once(self, work: Callable[[], T], deadline: float) -> T:
        is_reached = False
        try:
            self._meet(deadline)
            is_reached = True
            return self._answered(work())
        except (RedisError, OSError) as error:
            self._look_elsewhere(error)
            if self.is_closed or not _is_answer(error):
                self.hang_up()
            if not _passes(error):
                raise self._link.unavailable(error, is_reached=is_reached) from error
            self._trouble = str(error)
            raise _Again(error, is_reached=is_reached) from None
        except BaseException:  # Ctrl-C: half an answer may be on its way
            self.hang_up()
            raise

    def _look_elsewhere(self, error: Exception) -> None:
        if isinstance(error, MovedError):
            self._link.follow(error)
        elif isinstance(error, ConnectionError | TimeoutError | OSError):
            self._link.return_home()

    def _answered(self, answer: T) -> T:
        """The trouble is over. Nobody else hangs up, if another thread closed it meanwhile."""
        self._trouble = ""
        if self.is_closed:
            self.hang_up()
        return answer

    def _meet(self, deadline: float) -> None:
        if self.is_closed:
            raise StoreClosed
        left = max(_LEAST_SECONDS, deadline - time.monotonic())
        if self.is_doubted:
            self.hang_up()
        if self.server:
            self._connection._sock.settimeout(left)  # noqa: SLF001 - not from the beginning
            return
        self._connection.socket_timeout = self._connection.socket_connect_timeout = left
        self._connection.connect()
        self.number += 1
        facts = self._info(b"all")
        uptime = int(facts.get("uptime_in_seconds", 0))
        self.uptime_seconds = 0 if _may_have_forgotten(facts) else uptime
        # One that was a replica for a while has what the other one had.
        promoted_at = facts.get("second_repl_offset", "-1")
        self.server = f"{facts.get('run_id', 'unnamed')}.{promoted_at}"

    def _info(self, *sections: bytes) -> dict[str, str]:
        told = self._command(b"INFO", *sections).decode()
        pairs = (line.partition(":") for line in told.splitlines())
        return {name: value for name, _, value in pairs}

    def _command(self, *words: bytes) -> Any:
        self._connection.send_command(*words)
        return self._connection.read_response()

    def facts(self) -> dict[str, str]:
        """What the server says of itself."""
        return self.patiently(self._info)

    def ping(self) -> float:
        """How many seconds it takes to answer."""
        started = time.perf_counter()
        self.patiently(lambda: self._command(b"PING"))
        return time.perf_counter() - started

    def time(self) -> float:
        """Its clock."""
        seconds, microseconds = self.patiently(lambda: self._command(b"TIME"))
        return int(seconds) + int(microseconds) / 1e6

    def hang_up(self) -> None:
        """Begin anew with the next command."""
        self.server, self.has_gap, self.is_doubted = "", True, False
        self._connection.disconnect()
        self._connection = self._link.new_connection()

    def close(self) -> None:
        """For good; whoever is in the middle of something hangs up when that is done."""
        self.is_closed = True
        if not self.lock._is_owned() and self.lock.acquire(False):  # noqa: SLF001
            try:
                self.hang_up()
            finally:
                self.lock.release()


def _may_have_forgotten(facts: dict[str, str]) -> bool:
    """Whether a server was emptied, has evicted something or was a replica since it started."""
    is_emptied = "cmdstat_flushall" in facts or "cmdstat_flushdb" in facts
    was_replica = facts.get("second_repl_offset", "-1") != "-1"
    return is_emptied or was_replica or facts.get("evicted_keys", "0") != "0"


def _passes(error: Exception) -> bool:
    """Whether it is worth another try."""
    if isinstance(error, AuthenticationError):
        return False
    return isinstance(error, _TEMPORARY) or _TEMPORARY_WORDS.search(str(error)) is not None


def _is_answer(error: Exception) -> bool:
    """Whether the server itself has no time or no memory now; another one has no more."""
    return re.search(r"(^|: -)(BUSY|OOM) ", str(error)) is not None


def read_password(path: str) -> str:
    """The password that stands in a file, alone."""
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"store.password_file {path} cannot be read: {error}") from None


def _reason(error: ValueError) -> str:
    """Why a URL is none; what stands where its port should be may be a part of the password."""
    text = str(error)
    if "port" not in text.lower():
        return text
    return "its port is not a number; in a password, write / as %2F, : as %3A and @ as %40"
