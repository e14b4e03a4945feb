"""The governor: owns a store, hands out its slots and changes its limits."""

from __future__ import annotations

import _thread
import atexit

from headway import config, durations, forking
from headway.errors import ConfigError
from headway.keys import path as keys_path
from headway.limits import STORE, lines_from_code
from headway.slot import CURRENT, Request, Slot, lender_ids
from headway.stores import environ_for, open_store
from headway.telling import Teller, warn
from headway.tickets import MAX_PRIORITY, MAX_WEIGHT, check_priority, check_task, check_weight
from headway.turnstile import Turnstile, close_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Self, TypeVar

    from headway.config import Settings
    from headway.decorating import Decorator
    from headway.events import Event
    from headway.finished import Holds
    from headway.jobs.api import Jobs
    from headway.limits import Limit, Line
    from headway.regulating import Regulator
    from headway.slot import Lease
    from headway.stores.base import Store
    from headway.views import Capacity, LeaseView, Snapshot

    T = TypeVar("T")


class Governor:
    """Hands out the slots of one store: the home's, another directory's, or its own in memory.

    One governor serves all threads and event loops of a process. A process
    that forks may go on using it: the child is a holder of its own.
    """

    def __init__(
        self, store: str | None = None, *, limits: Mapping[str, Limit] | None = None
    ) -> None:
        offered = [] if limits is None else lines_from_code(limits)
        with forking.opening:
            opened, self._settings = open_store(store)
            new_lines = _adopt_file(opened, self._settings)
            self._teller = Teller(opened)
            self._turnstile = Turnstile(
                opened,
                self._teller,
                environ=environ_for(store, self._settings),
                inherited=self._settings.inherited,
            )
            forking.register(self._turnstile, kept=opened.shared)
        self._store.on_reclaimed = self._teller.reclaimed
        self._store.on_unheard = self._teller.unheard
        self._regulating: Regulator | None = None
        self._jobs: Jobs | None = None
        self._holds: Holds | None = None
        # The leases of a home mean nothing to a store in memory.
        self._lenders = self._settings.inherited if self._settings.home else ()
        offered = [*self._settings.offered_lines, *offered]
        if self._store.source == STORE:
            offered = [*self._settings.lines, *offered]
        if offered:
            new_lines += self._regulator.offer(offered)
        if new_lines:
            self._regulator.doubt([line.pattern for line in new_lines], in_force=True)

    # -- slots --------------------------------------------------------------------

    def slot(
        self,
        *keys: str,
        task: str | None = None,
        weight: int = 1,
        priority: int = 0,
        timeout: float | str | None = None,
        wait: bool = True,
        parent: Lease | str | None = None,
        on_wait: Callable[[Event], None] | None = None,
    ) -> Slot:
        """Ask for one slot on each of these keys and their ancestors, all or none.

        Enter it with ``with`` or ``async with``. ``timeout`` bounds the time in
        the queue, never the work. ``wait=False`` raises ``AtCapacity`` instead of
        queueing. ``parent`` names a lease whose slots this request may borrow; ``"current"``
        is the one that the caller runs under on entering, if any, and those round it.
        ``on_wait`` is called with an event when the wait gets noticeable, and
        whenever the ticket moved up.
        """
        if weight.__class__ is not int or not 1 <= weight <= MAX_WEIGHT:
            check_weight(weight)  # says why not
        if priority.__class__ is not int or not -MAX_PRIORITY <= priority <= MAX_PRIORITY:
            check_priority(priority)
        if wait.__class__ is not bool:
            raise ConfigError(f"wait must be True or False, got {wait!r}; for how long is timeout=")
        if on_wait is not None and not callable(on_wait):
            raise ConfigError(f"on_wait must be a function that takes an event, got {on_wait!r}")
        return Slot(
            self._turnstile,
            Request(
                keys,
                keys_path(keys),
                self._settings.task if task is None else check_task(task),
                weight,
                priority,
                None if timeout is None else durations.seconds(timeout, name="timeout"),
                wait,
                self._lenders if parent is None or parent == CURRENT else lender_ids(parent),
                on_wait,
                borrows_current=parent == CURRENT,
            ),
        )

    def limited(
        self,
        *keys: str,
        task: str | None = None,
        weight: int = 1,
        priority: int = 0,
        timeout: float | str | None = None,
        wait: bool = True,
        parent: Lease | str | None = None,
    ) -> Decorator:
        """Decorate a function, coroutine function or (async) generator to run under a slot.

        With ``parent="current"`` it runs on its caller's slot, if that has one on these keys.
        """
        from headway.decorating import limited  # noqa: PLC0415 - loads inspect

        return limited(
            keys,
            lambda: self.slot(
                *keys,
                task=task,
                weight=weight,
                priority=priority,
                timeout=timeout,
                wait=wait,
                parent=parent,
            ),
        )

    @property
    def jobs(self) -> Jobs:
        """The home's job queue: commands that are kept until it is their turn."""
        jobs = self._jobs
        if jobs is None:
            from headway.jobs.api import Jobs  # noqa: PLC0415 - the door to a room of its own

            self._jobs = jobs = Jobs(self)
        if self.closed:  # after that: who closes it closes what is there
            jobs.close()
        return jobs

    # -- looking --------------------------------------------------------------------

    def capacity(self, key: str) -> Capacity:
        """What asking for a slot on this key would meet right now."""
        from headway import views  # noqa: PLC0415 - loaded when something is shown

        return views.capacity(key, self._store.survey(keys_path((key,))))

    def snapshot(self) -> Snapshot:
        """All limits, leases and waiting tickets at one instant."""
        from headway import views  # noqa: PLC0415 - loaded when something is shown

        if self._holds is None and self._settings.home:
            from headway.finished import Holds  # noqa: PLC0415

            self._holds = Holds(self._settings.home)
        return views.snapshot(self._store.census(), self._holds)

    def version(self) -> int:
        """A number that differs when anything may have changed; far cheaper than a snapshot.

        The death of a holder changes nothing until somebody looks or waits.
        """
        return self._store.version()

    def lines(self) -> list[Line]:
        """The limits as they were written, patterns too; ``snapshot`` has them key by key."""
        return self._store.terms().lines

    def subscribe(self, hook: Callable[[Event], None]) -> Callable[[], None]:
        """Call ``hook`` with every event of this process's tickets; the answer ends that.

        It is called by whichever thread makes the event, and must not block.
        """
        return self._teller.subscribe(hook)

    # -- changing -------------------------------------------------------------------

    def set_limit(self, key: str, limit: Limit) -> None:
        """Give a key or pattern a limit, in the home's file too. Takes effect at once.

        A number means slots; ``{"requests_per_minute": 60}`` sets that and leaves the rest.
        """
        self._regulator.set_limit(key, limit)

    def unset_limit(self, key: str) -> None:
        """Take the line of a key or pattern away; the next less specific one counts."""
        self._regulator.unset_limit(key)

    def pause(self, key: str) -> None:
        """Stop admission on a key and all below it; running work goes on."""
        self._regulator.pause(key)

    def resume(self, key: str) -> None:
        """Admit again after ``pause``, and end a cool-down before its time."""
        self._regulator.resume(key)

    def cool_down(self, key: str, seconds: float | None = None, *, reason: str = "") -> float:
        """Stop admission on a key and all below it for a while, as its provider wishes.

        Without a number of seconds it is one at first, and twice as long as before for each probe
        that is refused. Then one ticket goes first, and the others when it was answered.
        The answer is the time of day when it ends.
        """
        return self._regulator.cool_down(key, seconds, reason)

    def reload(self) -> None:
        """Read the home's file again and put what it says in force."""
        self._regulator.reload()

    def cancel(self, ticket_id: str) -> bool:
        """End a waiting ticket, whoever's; false if it does not wait."""
        ticket_id, store = _text("ticket_id", ticket_id), self._store
        return self._turnstile.switchboard.operate(lambda: store.cancel(ticket_id))

    def revoke(self, lease_id: str, reason: str = "taken back by hand") -> bool:
        """Take a lease back, whoever's; its holder is told. False if there is none.

        A home keeps a line about it in ``releases.log``.
        """
        lease_id, reason = _text("lease_id", lease_id), _text("reason", reason)
        lease = next((lease for lease in self.snapshot().leases if lease.id == lease_id), None)
        revoked = lease is not None and self._turnstile.switchboard.operate(
            lambda: self._store.revoke(lease_id, reason)
        )
        if revoked and lease is not None and self._settings.home:
            self._record(lease, reason)
        return revoked

    def close(self) -> None:
        """Give back everything this process holds or waits for here, and stop.

        Those who wait get ``Cancelled``, and leases that are still held are lost. Other
        threads may be in the middle of anything: it is done, or refused as after closing.
        Called by a signal handler in the middle of an operation, it is done right after that.
        A governor of a home that is not closed lives as long as its process, which gives
        everything back as well.
        """
        try:
            self._turnstile.close()
        finally:
            if self._jobs is not None:
                self._jobs.close()

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._turnstile.closed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- the same for coroutines ------------------------------------------------------

    async def acapacity(self, key: str) -> Capacity:
        """``capacity`` without blocking the event loop."""
        return await _in_thread(lambda: self.capacity(key))

    async def asnapshot(self) -> Snapshot:
        """``snapshot`` without blocking the event loop."""
        return await _in_thread(self.snapshot)

    async def acool_down(
        self, key: str, seconds: float | None = None, *, reason: str = ""
    ) -> float:
        """``cool_down`` without blocking the event loop."""
        return await _in_thread(lambda: self.cool_down(key, seconds, reason=reason))

    async def aset_limit(self, key: str, limit: Limit) -> None:
        """``set_limit`` without blocking the event loop."""
        await _in_thread(lambda: self.set_limit(key, limit))

    async def aunset_limit(self, key: str) -> None:
        """``unset_limit`` without blocking the event loop."""
        await _in_thread(lambda: self.unset_limit(key))

    async def apause(self, key: str) -> None:
        """``pause`` without blocking the event loop."""
        await _in_thread(lambda: self.pause(key))

    async def aresume(self, key: str) -> None:
        """``resume`` without blocking the event loop."""
        await _in_thread(lambda: self.resume(key))

    async def areload(self) -> None:
        """``reload`` without blocking the event loop."""
        await _in_thread(self.reload)

    async def acancel(self, ticket_id: str) -> bool:
        """``cancel`` without blocking the event loop."""
        return await _in_thread(lambda: self.cancel(ticket_id))

    async def arevoke(self, lease_id: str, reason: str = "taken back by hand") -> bool:
        """``revoke`` without blocking the event loop."""
        return await _in_thread(lambda: self.revoke(lease_id, reason))

    async def aclose(self) -> None:
        """``close`` without blocking the event loop."""
        await _in_thread(self.close)

    # -- inside -------------------------------------------------------------------------

    def _record(self, lease: LeaseView, reason: str) -> None:
        from headway import releases  # noqa: PLC0415 - rarely needed

        try:
            releases.record(self._settings.home, lease, reason=reason, task=self._settings.task)
        except OSError as error:
            warn(f"that {lease.id} was taken back could not be recorded: {error}")

    @property
    def _regulator(self) -> Regulator:
        if self._regulating is None:
            from headway.regulating import Regulator  # noqa: PLC0415 - only to change limits

            self._regulating = Regulator(self._turnstile, self._settings.home)
        return self._regulating

    # -- for the rooms of Headway ---------------------------------------------------------

    @property
    def settings(self) -> Settings:
        """The settings that were in force when the store was opened."""
        return self._settings

    @property
    def turnstile(self) -> Turnstile:
        """Where tickets go through."""
        self._turnstile.refuse_if_closed()
        return self._turnstile

    @property
    def _store(self) -> Store:
        self._turnstile.refuse_if_closed()
        return self._turnstile.store


def _adopt_file(store: Store, settings: Settings) -> list[Line]:
    """The home's file is the truth about its limits, from this opening on."""
    try:
        return store.follow_file(settings)
    except ConfigError:  # someone has broken it just now
        store.close()
        raise


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be text, got {value!r}")
    return value


async def _in_thread(call: Callable[[], T]) -> T:
    from headway import aio  # noqa: PLC0415 - plain code has no use for asyncio

    return await aio.in_thread(call)


# -- the life of a process ----------------------------------------------------------------

_defaults: dict[str, Governor] = {}
# Re-entrant: a signal handler may ask for a slot in the middle of this.
_defaults_lock = _thread.RLock()


def default() -> Governor:
    """The governor of the home, shared by everything in this process that names none."""
    home = "" if config.is_off() else config.home_directory()
    governor = _defaults.get(home)
    if governor is None or governor.closed:
        with _defaults_lock:
            governor = _defaults.get(home)
            if governor is None or governor.closed:
                governor = _defaults[home] = Governor()
    return governor


def forget_after_fork() -> None:
    """Another thread of the parent may have been inside."""
    global _defaults_lock  # noqa: PLW0603 - the parent's lock
    _defaults_lock = _thread.RLock()


atexit.register(close_all)
