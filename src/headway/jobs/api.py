"""Jobs from Python: ``governor.jobs``."""

from __future__ import annotations

import time

from headway import config, durations, journal
from headway.errors import ConfigError, NotStartable, QueueTimeout, StoreUnavailable
from headway.jobs import places, rows
from headway.jobs.bell import Bells
from headway.jobs.board import Board
from headway.jobs.orders import Order
from headway.jobs.post import Post
from headway.jobs.submitted import Submitted
from headway.jobs.worker_presence import WorkerPresence, is_off, note_off
from headway.tickets import check_priority

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Literal, TypeVar, Unpack

    from headway.governor import Governor
    from headway.jobs.bell import Bell
    from headway.jobs.listing import Details, Job, Listing
    from headway.jobs.orders import Options
    from headway.jobs.places import Standing

    T = TypeVar("T")

# Where a worker takes its slots that has no server.
IN_THE_HOME = "the home itself"
_LOOK_SECONDS = 1.0
_FOLLOW_SECONDS = 0.1
# Each of so few jobs is looked up on its own.
_FEW = 50


class Jobs:
    """The job queue of a home."""

    def __init__(self, governor: Governor) -> None:
        self._governor = governor
        self.home = governor.settings.home
        if not self.home:
            why = "HEADWAY=off is set" if config.is_off() else "memory://"
            raise ConfigError(f"jobs are kept in a home; this governor has none ({why})")
        self.board = Board(governor.settings)
        self._bells = Bells(self.home)
        self._presence = WorkerPresence(
            self.home, self.board, self._bells, governor.turnstile.environ
        )
        self._listing: Listing | None = None

    # -- submitting ---------------------------------------------------------------------------

    def submit(
        self,
        command: Sequence[str],
        *,
        when_full: Literal["queue", "reject"] = "queue",
        start: bool = True,
        **options: Unpack[Options],
    ) -> Submitted:
        """Keep a command and run it when it is its turn; durable when this returns.

        ``NotStartable`` if there is no such program in the job's directory or PATH.
        Without ``keys`` it counts on ``agent/PROGRAM``. ``when_full="reject"`` raises
        ``AtCapacity`` instead of queueing. A worker is started if none runs, unless
        ``start=False``; if that fails the job is kept, and ``worker_error`` says why.
        """
        order = Order(command, **options)
        if when_full not in ("queue", "reject"):
            raise ConfigError(f'when_full must be "queue" or "reject", got {when_full!r}')
        return self._submit([order], reject=when_full == "reject", start=start)[0]

    def submit_many(self, orders: Iterable[Order], *, start: bool = True) -> list[Submitted]:
        """Keep many at once, all or none, in one step that is far cheaper than many."""
        return self._submit(list(orders), reject=False, start=start)

    def _submit(self, orders: list[Order], *, reject: bool, start: bool) -> list[Submitted]:
        def admit(connection: sqlite3.Connection) -> None:
            for order in orders:
                if rows.unfinished(connection, order.dedupe) is None:
                    places.refuse_if_full(connection, self._governor, order)

        self.refuse_other_store()
        for order in orders:
            order.find_program()
        kept = self.board.submit(orders, admit=admit if reject else None)
        for job, order in zip(kept, orders, strict=True):
            if job.is_new and self.board.news.is_wanted(order):
                self._say_where(job.id)
        self._bells.ring(job.id for job in kept)
        submitted = [Submitted(self, job.id, job.state, is_new=job.is_new) for job in kept]
        self._start_worker_for(submitted, start=start)
        return submitted

    def _start_worker_for(self, submitted: list[Submitted], *, start: bool) -> None:
        if not start:
            if self.worker() is None and is_off(self.board) is None:
                note_off(self.board, "a job was submitted with --no-start")
            return
        try:
            self._presence.ensure()
        except NotStartable as error:  # who tries again would have them twice
            for each in submitted:
                each.worker_error = error

    def refuse_other_store(self) -> None:
        """A job that ran elsewhere would not count where its submitter counts on it."""
        store, used = self._governor.turnstile.store, Post(self.home).note()
        wanted = store.name if store.distant else IN_THE_HOME
        if used not in ("", wanted):
            raise ConfigError(
                f"the worker of {self.home} takes its slots from {used}, not from {wanted}; write"
                " store.url into the config.toml of the home, then: headway worker stop"
            )

    def _say_where(self, job: int) -> None:
        """Have those who are told that it is queued told where it stands, if that is known."""
        try:
            standing = self.standing(job)
        except StoreUnavailable:
            return
        if standing is not None:
            wait = standing.estimated_wait_seconds
            about = f", about {wait:.0f} s" if wait else ""
            self.board.news.add(job, "queued", f"position {standing.position}{about}")

    def standing(self, job: int) -> Standing | None:
        """Where a queued job stands; none if it does not wait."""
        return places.standing(self._governor.turnstile.store, self.board, job)

    # -- looking --------------------------------------------------------------------------------

    def all(self, *, states: Sequence[str] = (), limit: int | None = None) -> list[Job]:
        """The jobs in these states, or all, in the order of their ids; of many the newest."""
        jobs = self._look().all(states=states, limit=limit)
        self.board.archive.mark_read(job.id for job in jobs if job.is_finished)
        return self._placed(jobs)

    def waiting(self, *, limit: int | None = None) -> list[Job]:
        """The queued jobs in the order of the line; of many the first."""
        return self._placed(self._look().in_line(limit))

    def _placed(self, jobs: list[Job]) -> list[Job]:
        queued = sum(job.state == "queued" for job in jobs)
        if queued <= _FEW:
            return [
                job.placed(self.standing(job.id)) if job.state == "queued" else job for job in jobs
            ]
        found = places.standings(self._governor.turnstile.store, self.board)
        return [job.placed(found.get(job.id)) for job in jobs]

    def get(self, job: int) -> Job:
        """One job with its place."""
        found = self._look().find(job)
        self._seen(found)
        return self._placed([found])[0]

    def named(self, task: str) -> list[Job]:
        """The jobs with this task name, the oldest first."""
        return self._look().named(task)

    def details(self, job: int) -> Details:
        """All there is to say about a job, its attempts included."""
        found = self._look().details(job, self.home)
        self._seen(found.job)
        return found

    def watch(self) -> Bell:
        """A bell that rings whenever something about a job has changed."""
        return self._bells.watch()

    def worker(self) -> tuple[int, float] | None:
        """The pid of the worker and since when it runs; none if there is none."""
        return self._presence.holder()

    def lacks_worker(self) -> bool:
        """Whether jobs are queued and no worker runs."""
        return self._presence.is_lacking()

    def worker_off(self) -> tuple[str, float] | None:
        """How and when somebody said that no worker shall run; none if nobody did."""
        return is_off(self.board)

    def ensure_worker(self) -> bool:
        """Start a worker if jobs are queued and none runs; whether one was started.

        None is started after `headway worker stop`, or if a job was kept with
        ``start=False`` and no worker has run since. ``NotStartable`` if that is not possible.
        """
        return self._presence.ensure_if_wanted()

    def counts(self) -> dict[str, int]:
        """How many jobs are in each state."""
        return self._look().counts()

    def output(self, job: int, attempt: int | None = None) -> Iterator[bytes]:
        """What an attempt has written, by default the last one."""
        from headway.jobs import log  # noqa: PLC0415

        number = self._look().find(job).attempts if attempt is None else attempt
        return log.read(log.path_of(self.home, job, number))

    def follow(self, job: int) -> Iterator[bytes]:
        """What the present attempt of a job writes, as it comes, until the job has ended.

        Waits for its start if it has not started yet. If it is run again, what that
        attempt writes follows.
        """
        from headway.jobs import log  # noqa: PLC0415

        # The attempt that is followed, or was followed last.
        number, follower = 0, None
        with self._bells.watch(job) as bell:
            while True:
                found = self._look().find(job)
                if follower is None and found.attempts > number:
                    number = number + 1 if number else found.attempts
                    follower = log.Follower(log.path_of(self.home, job, number))
                if follower is not None:
                    is_over = self._look().attempt_is_over(job, number) is not None
                    yield from follower.rest() if is_over else follower.new()
                    if is_over:
                        follower.close()
                        follower = None
                        continue
                elif found.is_finished:
                    self._seen(found)
                    return
                bell.wait(_FOLLOW_SECONDS if follower else _LOOK_SECONDS)

    def wait_for(self, job: int, *, timeout: float | str | None = None) -> Job:
        """Block until a job has ended; ``QueueTimeout`` if that takes longer than ``timeout``.

        A worker that is missing is started, as by ``ensure_worker``.
        """
        limit = None if timeout is None else durations.seconds(timeout, name="timeout")
        deadline = None if limit is None else time.monotonic() + limit
        with self._bells.watch(job) as bell:
            while not (found := self._look().find(job)).is_finished:
                left = _LOOK_SECONDS if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    raise QueueTimeout(found.keys, limit or 0.0)
                self._tend_worker()
                bell.wait(min(left, _LOOK_SECONDS))
        self._seen(found)
        return found

    def _tend_worker(self) -> None:
        try:
            self._presence.ensure_if_wanted()
        except NotStartable:
            pass  # who waits may be more patient than the system

    def _seen(self, job: Job) -> None:
        if job.is_finished:
            self.board.archive.mark_read([job.id])

    # -- managing -------------------------------------------------------------------------------

    def cancel(self, job: int, reason: str = "cancelled by hand") -> str | None:
        """End a job in whatever state; the state it was in, or none if it had ended."""
        self._presence.settle()
        before = self.board.cancel(job, reason)
        self._bells.ring([job])
        return before

    def approve(self, job: int) -> bool:
        """Queue a job that is held; false if it is not held."""
        approved = self.board.approve(job)
        self._changed(job)
        return approved

    def retry(self, job: int) -> str | None:
        """Queue a finished job again; its new state, or none if it has not ended."""
        self._presence.settle()
        state = self.board.retry(job)
        self._changed(job)
        return state

    def move_first(self, job: int) -> bool:
        """Put a queued job in front of everyone; false if it is not queued."""
        waiting = self._governor.turnstile.store.census().waiting
        ranks = [ticket.rank for ticket in waiting]
        moved = self.board.move_first(job, before=min(ranks, default=None))
        self._bells.ring([job])
        return moved

    def move_last(self, job: int) -> bool:
        """Put a queued job behind all others of its priority; false if it is not queued."""
        moved = self.board.move_last(job)
        self._bells.ring([job])
        return moved

    def set_priority(self, job: int, priority: int) -> bool:
        """Give a job that waits another priority; false if it neither waits nor is held."""
        changed = self.board.set_priority(job, check_priority(priority))
        self._bells.ring([job])
        return changed

    def prune(self, *, older_than: float | str | None = None, keep: int | None = None) -> list[int]:
        """Forget finished jobs and their logs: all, those that ended so long ago, or the older."""
        pruned = self.board.archive.prune(ended_before=_moment(older_than), keep=keep)
        pruned.remove_logs(self.home)
        return [job for job, _, _ in pruned.rows]

    def prunable(
        self, *, older_than: float | str | None = None, keep: int | None = None
    ) -> list[int]:
        """The jobs that ``prune`` would forget."""
        found = self.board.archive.prunable(ended_before=_moment(older_than), keep=keep)
        return [job for job, _, _ in found.rows]

    # -- the same for coroutines ------------------------------------------------------------------

    async def asubmit(
        self,
        command: Sequence[str],
        *,
        when_full: Literal["queue", "reject"] = "queue",
        start: bool = True,
        **options: Unpack[Options],
    ) -> Submitted:
        """``submit`` without blocking the event loop."""
        return await _in_thread(
            lambda: self.submit(command, when_full=when_full, start=start, **options)
        )

    async def asubmit_many(self, orders: Iterable[Order], *, start: bool = True) -> list[Submitted]:
        """``submit_many`` without blocking the event loop."""
        return await _in_thread(lambda: self.submit_many(orders, start=start))

    async def aall(self, *, states: Sequence[str] = (), limit: int | None = None) -> list[Job]:
        """``all`` without blocking the event loop."""
        return await _in_thread(lambda: self.all(states=states, limit=limit))

    async def aget(self, job: int) -> Job:
        """``get`` without blocking the event loop."""
        return await _in_thread(lambda: self.get(job))

    async def acancel(self, job: int, reason: str = "cancelled by hand") -> str | None:
        """``cancel`` without blocking the event loop."""
        return await _in_thread(lambda: self.cancel(job, reason))

    async def aapprove(self, job: int) -> bool:
        """``approve`` without blocking the event loop."""
        return await _in_thread(lambda: self.approve(job))

    async def aretry(self, job: int) -> str | None:
        """``retry`` without blocking the event loop."""
        return await _in_thread(lambda: self.retry(job))

    async def amove_first(self, job: int) -> bool:
        """``move_first`` without blocking the event loop."""
        return await _in_thread(lambda: self.move_first(job))

    async def await_for(self, job: int, *, timeout: float | str | None = None) -> Job:  # noqa: ASYNC109 - as wait_for
        """``wait_for`` without blocking the event loop, and without a thread that waits."""
        limit = None if timeout is None else durations.seconds(timeout, name="timeout")
        deadline = None if limit is None else time.monotonic() + limit
        with self._bells.watch(job) as bell:
            while not (found := await _in_thread(lambda: self._look().find(job))).is_finished:
                left = _LOOK_SECONDS if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    raise QueueTimeout(found.keys, limit or 0.0)
                await _in_thread(self._tend_worker)
                await bell.await_ring(min(left, _LOOK_SECONDS))
        await _in_thread(lambda: self._seen(found))
        return found

    def close(self) -> None:
        """Give the board's connection back, for good."""
        self.board.database.close(for_good=True)

    # -- inside -----------------------------------------------------------------------------------

    def _changed(self, job: int) -> None:
        self._bells.ring([job])
        try:
            self._presence.ensure()
        except NotStartable as error:
            journal.log().warning(
                "job %d is queued, but no worker could be started: %s", job, error
            )

    def _look(self) -> Listing:
        self._presence.settle()
        if self._listing is None:
            from headway.jobs.listing import Listing  # noqa: PLC0415 - loads dataclasses

            self._listing = Listing(self.board)
        return self._listing


def _moment(older_than: float | str | None) -> float | None:
    """When that was."""
    if older_than is None:
        return None
    return time.time() - durations.seconds(older_than, name="older_than")


async def _in_thread(call: Callable[[], T]) -> T:
    from headway import aio  # noqa: PLC0415 - plain code has no use for asyncio

    return await aio.in_thread(call)
