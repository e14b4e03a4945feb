"""The worker: drains the job queue of a home.

It has a ticket in line for every job that is ready, like everybody else who waits
there. When one is granted, it lets a supervisor take the lease over and run the
job. One loop, which sleeps until something happens; no process per waiting job.
"""

from __future__ import annotations

import os
import select
import time
from typing import TYPE_CHECKING

from headway import config, family, interpreter
from headway.errors import ConfigError, NotStartable, StoreUnavailable, no_more_processes
from headway.governor import Governor
from headway.jobs.aftermath import Aftermath
from headway.jobs.bell import Bells
from headway.jobs.board import Board
from headway.jobs.chores import Chores
from headway.jobs.delays import Delays
from headway.jobs.line import Line
from headway.jobs.memory import Reserve
from headway.jobs.messenger import Messengers
from headway.jobs.states import RUNNING
from headway.jobs.stop_request import StopRequest
from headway.jobs.worker_presence import note_off, note_on
from headway.stores import url_of
from headway.tickets import Granted, Refused
from headway.wire import Wire, raise_limit_of_files

if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.config import Settings
    from headway.jobs.post import Post
    from headway.jobs.rows import Wish
    from headway.tickets import Decision, Ticket

# A bell that was not rung, because its ringer was killed, costs this much.
_LOOK_SECONDS = 1.0
_RETRY_SECONDS = 1.0


class Worker:
    """Runs the jobs of one home until it is told to stop."""

    def __init__(
        self,
        settings: Settings,
        *,
        post: Post,
        say: Callable[[str], None],
        idle_exit_seconds: float | None = None,
    ) -> None:
        self._settings, self._say, self._idle_exit = settings, say, idle_exit_seconds
        self._home, self._settings_stamp = settings.home, config.stamp(settings.home)
        self._bells = Bells(self._home)
        self._bell = self._bells.watch()
        self._board = Board(settings)
        self._governor = Governor(url_of(settings))
        self._line = Line(self._governor.turnstile)
        self._messengers = Messengers(self._home, self._board)
        self._chores = Chores(self._home, self._board, self._bells, self._messengers, say=say)
        self._wake, self._woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._aftermath = Aftermath(self._home, self._board, self._bells, woken=self._woken)
        # Jobs that have their slots and wait for memory; those handed to a supervisor, with
        # our lease until it has taken over; and those whose supervisor has, or ends.
        self._ready: dict[int, Ticket] = {}
        self._starting: dict[int, Ticket] = {}
        self._running: set[int] = set()
        self._told_to_cancel: set[int] = set()
        # Why others will never get their slots, until the board can be told.
        self._refused: dict[int, str] = {}
        # Whether there may be attempts of a nursery that was killed.
        self._is_in_doubt = False
        self._delayed = Delays()
        # The last change that was seen, and in which board.
        self._seen_revision = self._seen_board = 0
        self._stop = StopRequest(post)
        self._reserve = Reserve(say)
        self._complaint = ""
        self._busy_at = time.monotonic()

    # -- life -------------------------------------------------------------------------------

    def run(self) -> None:
        """Work until stopped, or until there was nothing to do for long enough."""
        family.adopt_orphans()
        self._stop.heed_signals(self._woken)
        self._nursery = self._start_nursery()
        raise_limit_of_files()
        note_on(self._board)
        self._reconcile()
        self._look_at_everything()
        while not self._is_over():
            self._step()
        self._close()

    def _is_over(self) -> bool:
        if self._stop.is_displaced:
            self._say("its home was deleted or replaced; its jobs are ended, and it leaves")
            return True
        if self._starting or self._running or self._aftermath:
            self._busy_at = time.monotonic()
            return False
        if self._stop:
            return True
        if len(self._line) or self._ready or self._delayed or self._refused:
            self._busy_at = time.monotonic()
            return False
        is_idle = self._idle_exit is not None and time.monotonic() - self._busy_at > self._idle_exit
        # A job that is held may expire, and one that failed be retried: somebody has to see to it.
        return is_idle and self._chores.seconds_to_next() is None

    def is_needed(self) -> bool:
        """Whether a job was kept while it left."""
        return not self._stop and self._board.counts_ready() > 0

    def _close(self) -> None:
        if self._stop.is_by_hand:
            note_off(self._board, "its worker was stopped with Ctrl-C")
        self._nursery.hang_up()
        while self._nursery.receive() is not None:
            pass  # until it has ended
        self._bell.close()
        self._governor.close()
        self._board.database.close()

    # -- one turn -----------------------------------------------------------------------------

    def _step(self) -> None:
        poll = select.poll()
        for one in (self._wake, self._bell, self._line, self._nursery):
            poll.register(one, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(self._patience_seconds() * 1000)}
        self._stop.look_at_post()
        if self._stop.is_displaced:
            return
        if self._wake in ready:
            os.read(self._wake, 4096)
            for _ in family.news():
                pass  # whoever ended is noticed by what it held
        self._bell.hush()
        if self._nursery.fileno() in ready:
            self._hear()
        try:
            self._settle()
            # First of all: whoever has its slots is waiting for nothing but us.
            for job, ticket, decision in self._line.news():
                self._decided(job, ticket, decision)
            self._cancel_refused()
            self._start_ready()
            self._heed_settings()
            if self._stop:
                self._wind_down()
            else:
                self._look()
                self._stand_delayed()
            self._chores.do_if_due()
        except (StoreUnavailable, NotStartable) as error:
            self._complain(f"{error}; trying again")
            time.sleep(_RETRY_SECONDS)

    def _complain(self, text: str) -> None:
        """Say what is wrong, and not again and again."""
        if text != self._complaint:
            self._complaint = text
            self._say(text)

    def _heed_settings(self) -> None:
        """What a person changed in the file counts from now on."""
        stamp = config.stamp(self._home)
        if stamp == self._settings_stamp:
            return
        self._settings_stamp = stamp
        try:
            self._settings = config.load(self._home)
        except ConfigError as error:
            self._say(f"the settings stay as they were: {error}")
        else:
            self._board.heed(self._settings)

    def _patience_seconds(self) -> float:
        waits = [_LOOK_SECONDS, self._chores.seconds_left()]
        delay = self._delayed.seconds_left()
        waits += [] if delay is None else [delay]
        return max(0.0, min(waits))

    def _look(self) -> None:
        """See to the jobs that changed."""
        changed = self._board.changed_since(self._seen_revision)
        if self._board.database.opened != self._seen_board:  # another one took its place
            self._seen_board, self._seen_revision = self._board.database.opened, 0
            changed = self._board.changed_since(0)
        for wish in changed:
            self._consider(wish)
            self._seen_revision = wish.revision
        if changed:
            self._messengers.look()
            self._chores.hurry()

    def _look_at_everything(self) -> None:
        wishes = self._board.wishes("state in ('queued', 'running') order by rank, id")
        self._seen_board = self._board.database.opened
        for wish in wishes:
            if not self._stop:
                self._consider(wish)
        self._seen_revision = max([self._seen_revision, *(wish.revision for wish in wishes)])

    def _consider(self, wish: Wish) -> None:
        job = wish.id
        if wish.state == RUNNING:
            self._reconcile(job)
            if wish.cancel_reason is not None and job not in self._told_to_cancel:
                self._told_to_cancel.add(job)
                self._nursery.send("cancel", job=job, reason=wish.cancel_reason)
        elif not wish.is_ready:
            self._delayed.forget(job)
            self._line.leave(job)
            if job in self._ready:
                self._line.give_back(self._ready.pop(job))
        elif not self._is_seen_to(job):
            self._line.stand(wish)

    def _is_seen_to(self, job: int) -> bool:
        """Whether more than a place in line is known for it already."""
        places = (self._ready, self._starting, self._running, self._delayed, self._refused)
        return self._aftermath.has_stranger(job) or any(job in group for group in places)

    def _is_attended(self, job: int) -> bool:
        """Whether we will hear of the end of its attempt."""
        return any(job in group for group in (self._starting, self._running, self._aftermath))

    def _reconcile(self, only: int | None = None) -> None:
        """Find out what became of attempts that another worker or nursery has started."""
        self._aftermath.reconcile(only, is_attended=self._is_attended)

    # -- granted ------------------------------------------------------------------------------

    def _decided(self, job: int, ticket: Ticket, decision: Decision) -> None:
        if isinstance(decision, Granted):
            self._ready[job] = ticket
        elif isinstance(decision, Refused) and decision.reason == "queue_full":
            self._delayed.put_off(job)
        elif isinstance(decision, Refused):
            reason = f"it can never fit on {decision.key}: its weight is {ticket.weight}"
            self._refused[job] = reason
        else:
            self._refused[job] = "its ticket was cancelled"

    def _cancel_refused(self) -> None:
        for job, reason in list(self._refused.items()):
            self._board.cancel(job, reason)
            self._bells.ring([job])
            del self._refused[job]

    def _start_ready(self) -> None:
        """Start what was granted, unless that would exhaust the memory."""
        least = self._settings.min_free_memory_bytes
        if not self._ready or self._stop or not self._reserve.is_kept(least):
            return
        for job, ticket in list(self._ready.items()):
            del self._ready[job]
            self._starting[job] = ticket
            self._nursery.send("start", job=job, lease=ticket.id)
            if least is not None:
                return  # the next one when this one has taken what it needs

    def _stand_delayed(self) -> None:
        for job in self._delayed.take_due():
            wish = self._board.wish(job)
            if wish is None:
                self._delayed.forget(job)
            else:
                self._line.stand(wish)

    # -- what the supervisors say ---------------------------------------------------------------

    def _hear(self) -> None:
        message = self._nursery.receive()
        if message is None:
            self._nursery_died()
            return
        job, kind = message["job"], message["kind"]
        if job is None:
            self._complain(message.get("reason", kind))
        elif kind == "gone":
            self._attempt_is_over(job)
        else:
            self._let_go(job)
            self._running.add(job)
            if kind == "took":
                self._delayed.forget(job)
            else:  # declined, failed
                self._complain(f"job {job} was not started: {message['reason']}")
            if kind == "failed":
                self._delayed.put_off(job)

    def _let_go(self, job: int) -> None:
        ticket = self._starting.pop(job, None)
        if ticket is not None:
            self._line.give_back(ticket)

    def _attempt_is_over(self, job: int) -> None:
        """The supervisor and all it had are gone."""
        self._let_go(job)
        self._aftermath.add(job)

    def _settle(self) -> None:
        """See to jobs whose attempt is over."""
        if self._is_in_doubt:
            self._reconcile()
            self._look_at_everything()
            self._is_in_doubt = False
        for job in self._aftermath.over():
            self._aftermath.write_down(job)
            wish = self._board.wish(job)
            for group in (self._running, self._told_to_cancel):
                group.discard(job)
            if wish is not None and not self._stop:
                self._consider(wish)
            self._aftermath.forget(job)
            self._tell_if_empty()

    def _tell_if_empty(self) -> None:
        if not (self._running or self._starting or len(self._line) or self._ready):
            self._board.news.tell_if_empty()
        self._messengers.look()

    def _nursery_died(self) -> None:
        self._say("the nursery was killed; its jobs end, and another one takes its place")
        self._nursery.close()
        for job in list(self._starting):
            self._let_go(job)
        self._running.clear()
        self._is_in_doubt = True
        self._nursery = self._start_nursery()

    def _start_nursery(self) -> Wire:
        near, far = Wire.pair()
        words = interpreter.words("headway.jobs.nursery", self._home, str(far.fileno()))
        os.set_inheritable(far.fileno(), True)
        try:
            os.posix_spawn(words[0], words, os.environ, setsigmask=[])
        except OSError as error:
            raise no_more_processes(error) from error
        finally:
            far.close()
        return near

    # -- leaving -----------------------------------------------------------------------------------

    def _wind_down(self) -> None:
        """Let nobody in any more; end those inside if that was wanted."""
        # The last first: whenever the first one leaves, another has to take its part.
        for job in [*reversed(self._line.jobs()), *self._ready]:
            self._line.leave(job)
            if job in self._ready:
                self._line.give_back(self._ready.pop(job))
        if self._stop.is_urgent:
            for job in self._running - self._told_to_cancel:
                self._told_to_cancel.add(job)
                self._nursery.send("stop", job=job, reason="the worker was stopped")
