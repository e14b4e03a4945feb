"""What is done about attempts whose supervisor is gone, whoever had started it.

Usually it has written down how its attempt ended. If it was killed, somebody else
has to; and if its worker was as well, what is left of the attempt has to be ended.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from headway import background, leftovers
from headway.jobs import log
from headway.jobs.states import INTERRUPTED, Ending
from headway.stores.liveness import Live

if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.jobs.bell import Bells
    from headway.jobs.board import Board


class Aftermath:
    """The attempts of one home that are over or will be, with nobody else to see to them."""

    def __init__(self, home: str, board: Board, bells: Bells, *, woken: int) -> None:
        self._home, self._board, self._bells, self._woken = home, board, bells, woken
        self._live = Live(os.path.join(home, "live"))
        # Supervisors that are not children of our nursery, by the end of their lock.
        self._strangers: set[int] = set()
        self._ended_strangers: list[int] = []
        # Jobs whose attempt is over, until that is written down and they were looked at.
        self._over: set[int] = set()

    def __len__(self) -> int:
        return len(self._strangers | self._over)

    def __contains__(self, job: int) -> bool:
        return job in self._strangers or job in self._over

    def has_stranger(self, job: int) -> bool:
        """Whether a supervisor that is not ours has it in hand."""
        return job in self._strangers

    def reconcile(self, only: int | None, *, is_attended: Callable[[int], bool]) -> None:
        """Find out what became of attempts that another worker or nursery has started."""
        if only is not None and is_attended(only):
            return
        for job, number, holder in self._board.under_way(only):
            if is_attended(job):
                continue
            if self._live.is_alive(holder):
                self._strangers.add(job)
                background.start(self._await_stranger, job, holder)
            else:
                self._lost(job, number, holder)

    def settle_dead(self) -> None:
        """See to the attempts whose supervisor is gone, where no worker does."""
        for job, number, holder in self._board.under_way():
            if not self._live.is_alive(holder):
                self._lost(job, number, holder)

    def _await_stranger(self, job: int, holder: str) -> None:
        self._live.wait_for_end(holder)
        self._ended_strangers.append(job)
        os.write(self._woken, b".")

    def add(self, job: int) -> None:
        """A supervisor of ours and all it had are gone."""
        self._over.add(job)

    def over(self) -> list[int]:
        """The jobs to be seen to: ``write_down``, then ``forget`` when all that was done."""
        while self._ended_strangers:
            self._over.add(self._ended_strangers.pop())
        return list(self._over)

    def write_down(self, job: int) -> None:
        """See to it that its attempt has an end; usually the supervisor has written it."""
        for _, number, holder in self._board.under_way(job):
            if job in self._strangers:
                self._lost(job, number, holder)
            else:
                ending = Ending(INTERRUPTED, "its supervisor was killed")
                self._interrupt(job, number, holder, ending)
        self._strangers.discard(job)

    def forget(self, job: int) -> None:
        """It was seen to."""
        self._over.discard(job)

    def _lost(self, job: int, number: int, holder: str) -> None:
        """Nobody is left who could say how it ended; see to it that it has."""
        killed = leftovers.end(HEADWAY_JOB=f"{job}.{number}", HEADWAY_HOME=self._home)
        rest = f"; {killed} processes of it were still running" if killed else ""
        reason = f"its worker and its supervisor were killed{rest}"
        self._interrupt(job, number, holder, Ending(INTERRUPTED, reason, is_of_worker=True))

    def _interrupt(self, job: int, number: int, holder: str, ending: Ending) -> None:
        log.join(log.path_of(self._home, job, number))
        self._board.end(job, number, ending, holder=holder)
        self._bells.ring([job])
