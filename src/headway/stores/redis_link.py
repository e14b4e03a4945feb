"""The way to a Redis server: one script, a few connections, and what its errors mean."""

from __future__ import annotations

import hashlib
import random
import re
import time
from typing import TYPE_CHECKING

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

from headway import journal
from headway.errors import ConfigError, StoreUnavailable
from headway.stores import patience, shown
from headway.stores.base import StoreClosed
from headway.stores.locks import owned_lock
from headway.stores.patience import Patience
from headway.stores.redis_address import explained, pool_for, refuse_sentinel
from headway.stores.redis_script import script

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, TypeVar

    T = TypeVar("T")

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.02, 1.0
# After so long without an answer it is said that the server is waited for.
_NOTICE_SECONDS = 0.4
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
        refuses_eviction: bool = False,
        text: bytes | None = None,
    ) -> None:
        self.name = shown(url, namespace)
        self._pool = pool_for(url, self.name, timeout_seconds=timeout_seconds, password=password)
        # Whether a server has ever answered there; and whether it was tried in the other way.
        self.has_answered = self._is_probed = False
        self._refuses_eviction = refuses_eviction
        self.is_wait_told = False
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

    def explained(self, error: Exception) -> Exception:
        """Why no server was ever met at this address; asked for once."""
        if self.has_answered or self._is_probed:
            return error
        self._is_probed = True
        return explained(error, self._pool)

    def refuse_eviction(self, policy: str) -> None:
        """Refuse a server that may throw leases away, unless the settings allow it."""
        if policy and self._refuses_eviction:
            raise ConfigError(
                f"store {self.name} cannot be used: its server evicts keys when its memory is"
                f" full ({policy}), leases too; set maxmemory-policy noeviction there, or accept"
                ' that with store.eviction = "allow"'
            )

    def run(self, connection: Any, words: Sequence[bytes], answer: Callable[[], Any]) -> Any:
        """Have the server run one operation."""
        try:
            command = pack_command((*self._beginning, *words))  # type: ignore[arg-type]
            connection.send_packed_command([command])
            return answer()
        except NoScriptError:
            connection.send_command(b"EVAL", self._text, 1, self.tag, *words)
            return answer()

    def tell_of_wait(self, deadline: float) -> None:
        """Log that the server is waited for, once until it answers."""
        left = deadline - time.monotonic()
        if self.is_wait_told or left < _NOTICE_SECONDS or patience.is_kept_quiet():
            return
        self.is_wait_told = True
        end = "" if patience.is_listening() else f", gives up in {left:.0f} s"
        journal.log().warning("waiting for the store at %s%s", self.name, end)

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
        # Which server this is. Another one may not know what the last one knew.
        self.server = ""
        # By which policy it evicts keys, if it does.
        self.eviction = ""
        # Whether that may be another one by now, though the connection has lasted.
        self.is_doubted = False
        # How often it was opened: what was said on an earlier one may still arrive.
        self.number = 0
        # When the one who is at it now gives up; whether the last try to connect took too long.
        self._deadline, self._is_slow = 0.0, False
        # Why whoever is at it now asks again.
        self._trouble = ""
        # Whether an answer may have been lost, with what it told of our tickets.
        self.has_gap = False

    def operate(self, words: Callable[[], Sequence[bytes]], deadline: float | None = None) -> Any:
        """Run one operation; it is tried again until the time for it is over."""
        work = self._link.run
        return self.patiently(lambda: work(self._connection, words(), self._answer), deadline)

    def patiently(self, work: Callable[[], T], deadline: float | None = None) -> T:
        """Do something with the server, as often as it takes within the time for it."""
        if deadline is None:
            deadline = self._link.deadline()
        pause, is_reached = _FIRST_PAUSE_SECONDS, False
        tell_at = time.monotonic() + _NOTICE_SECONDS
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
            if time.monotonic() + pause >= tell_at:
                self._link.tell_of_wait(deadline)
            # Others may have their turn: a server can refuse one thing and do another.
            time.sleep(min(left, pause * random.uniform(0.5, 1.0)))  # noqa: S311
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _in_turn(self, work: Callable[[], T], deadline: float) -> T:
        """Try it once, when no other thread is at it."""
        try:
            # Not with "with": another thread may wait for an answer as long as we may.
            if not self.lock.acquire(True, _NOTICE_SECONDS) and not self._waits_on(deadline):
                reason = "it does not answer another thread of this process"
                raise self._link.unavailable(self._trouble or reason, is_reached=False)
            return self._once(work, deadline)
        finally:
            # Nothing may come before it: Ctrl-C strikes between two calls.
            try:
                self.lock.release()
            except RuntimeError:  # it did so before the lock was ours
                pass

    def _waits_on(self, deadline: float) -> bool:
        """Wait on for another thread that is at it; whether it was done in time."""
        self._link.tell_of_wait(deadline)
        return self.lock.acquire(True, max(0.0, deadline - time.monotonic()))

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
            reason = error if is_reached else self._link.explained(error)
            if not _passes(reason):
                raise self._link.unavailable(reason, is_reached=is_reached) from error
            self._trouble = str(reason)
            raise _Again(reason, is_reached=is_reached) from None
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
        self._trouble, self._is_slow, self._link.is_wait_told = "", False, False
        if self.is_closed:
            self.hang_up()
        return answer

    def _meet(self, deadline: float) -> None:
        if self.is_closed:
            raise StoreClosed
        left = max(_LEAST_SECONDS, deadline - time.monotonic())
        self._deadline = deadline
        if self.is_doubted:
            self.hang_up()
        if self.server:
            self._connection._sock.settimeout(left)  # noqa: SLF001 - not from the beginning
            return
        self._connect(left)
        self.number += 1
        facts = self._info()
        refuse_sentinel(facts)
        self._link.has_answered = True
        self.eviction = eviction(facts)
        # One that was a replica for a while has what the other one had.
        promoted_at = facts.get("second_repl_offset", "-1")
        self.server = f"{facts.get('run_id', 'unnamed')}.{promoted_at}"

    def _connect(self, seconds: float) -> None:
        """Open it; the first try is brief, so that a wait for the server is told in time."""
        brief = seconds if self._is_slow else min(seconds, _NOTICE_SECONDS)
        self._is_slow = True
        self._connection.socket_timeout = self._connection.socket_connect_timeout = brief
        self._connection.connect()
        self._connection._sock.settimeout(seconds)  # noqa: SLF001

    def _answer(self) -> Any:
        """Read an answer; who has waited for it in silence is told so, and waits on."""
        connection = self._connection
        left = self._deadline - time.monotonic()
        if left > _NOTICE_SECONDS:
            connection._sock.settimeout(_NOTICE_SECONDS)  # noqa: SLF001
            try:
                return connection.read_response(disconnect_on_error=False)
            except TimeoutError:
                self._link.tell_of_wait(self._deadline)
                left = max(_LEAST_SECONDS, self._deadline - time.monotonic())
                connection._sock.settimeout(left)  # noqa: SLF001
        return connection.read_response()

    def _info(self) -> dict[str, str]:
        told = self._command(b"INFO").decode()
        pairs = (line.partition(":") for line in told.splitlines())
        return {name: value for name, _, value in pairs}

    def _command(self, *words: bytes) -> Any:
        self._connection.send_command(*words)
        return self._answer()

    def facts(self) -> dict[str, str]:
        """What the server says of itself."""
        return self.patiently(self._info)

    def setting(self, name: bytes) -> str | None:
        """The value of a setting of the server; none if it does not tell us."""
        try:
            found = self.patiently(lambda: self._command(b"CONFIG", b"GET", name))
        except StoreUnavailable:  # hosted servers and access lists keep it to themselves
            return None
        # A table, or a list of names and values, depending on the protocol.
        values = list(found.values()) if isinstance(found, dict) else found[1:]
        return values[0].decode() if values else None

    def data_format(self) -> int | None:
        """In which format the rows of the namespace are; none if there are none."""
        meta = self._link.tag + b":meta"
        found = self.patiently(lambda: self._command(b"HGET", meta, b"format"))
        return None if found is None else int(found)

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


def eviction(facts: Mapping[str, str]) -> str:
    """How a server evicts keys when its memory is full; nothing if it does not, or hides it."""
    policy, memory = facts.get("maxmemory_policy", "noeviction"), facts.get("maxmemory", "0")
    if policy == "noeviction" or memory == "0":
        return ""
    return f"maxmemory-policy {policy}, maxmemory {memory}"


def _passes(error: Exception) -> bool:
    """Whether it is worth another try."""
    if isinstance(error, AuthenticationError):
        return False
    return isinstance(error, _TEMPORARY) or _TEMPORARY_WORDS.search(str(error)) is not None


def _is_answer(error: Exception) -> bool:
    """Whether the server itself has no time or no memory now; another one has no more."""
    return re.search(r"(^|: -)(BUSY|OOM) ", str(error)) is not None
