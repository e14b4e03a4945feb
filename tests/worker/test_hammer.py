"""Workers, nurseries, supervisors, commands and submitters killed at random moments.

The jobs check for themselves, with kernel locks that everything they start inherits: that
none of them runs twice at once, and that no more run than there are slots.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from tests.worker.kit import PROGRAM, is_alive, kill, until

if TYPE_CHECKING:
    from tests.worker.kit import House

_SLOTS = 3
# Keeps descriptors 8 and 9 locked for its own life and that of its stray child.
_JOB = """
exec 9> lock.${HEADWAY_JOB%.*}
flock -n 9 || echo twice $HEADWAY_JOB >> violations
for slot in 1 2 3 none; do exec 8> slot.$slot; flock -n 8 && break; done
test $slot = none && echo over $HEADWAY_JOB >> violations
setsid sleep 0.$(($(od -An -N1 -tu1 /dev/urandom) % 4)) &
sleep 0.$(($(od -An -N1 -tu1 /dev/urandom) % 4))
wait
"""


class Havoc:
    """Kills one thing after another and keeps the house going."""

    def __init__(self, house: House, seed: int) -> None:
        self.house, self.random = house, random.Random(seed)
        self.worker = house.worker()
        self.kept: list[int] = []
        self._quiet_until = 0.0

    def wreak(self) -> None:
        """One random deed."""
        deed = self.random.choice(
            [self.kill_worker] * 4
            + [self.kill_supervisor, self.kill_nursery, self.kill_command, self.kill_submitter]
            + [self.submit] * 6
            + [self.pause] * 4
        )
        deed()

    def pause(self) -> None:
        time.sleep(self.random.random() * 0.1)

    def submit(self) -> None:
        self.kept.append(self.house.submit(_JOB, retries=1000))

    def kill_worker(self) -> None:
        kill(self.worker.pid)
        self.worker.wait()
        self.worker = self.house.worker()
        # Those of the old worker end now. One who kills all three at once is not the kernel.
        self._quiet_until = time.monotonic() + 2.5

    def kill_nursery(self) -> None:
        if time.monotonic() > self._quiet_until:
            kill(self.house.nursery(self.worker))
            self._quiet_until = time.monotonic() + 2.5

    def kill_supervisor(self) -> None:
        running = self.house.jobs.all(states=["running"])
        if running and time.monotonic() > self._quiet_until:
            kill(self.house.supervisor(self.random.choice(running).id))

    def kill_command(self) -> None:
        processes = self.house.processes()
        if processes:
            try:
                os.kill(self.random.choice(processes), signal.SIGKILL)
            except ProcessLookupError:
                pass

    def kill_submitter(self) -> None:
        """It has kept the job or it has not; either is fine, anything between is not."""
        words = [PROGRAM, "submit", "--no-start", "--on", "agent/test", "--retries", "1000", "--"]
        submitter = subprocess.Popen(
            [*words, "sh", "-c", _JOB],
            env=self.house.environ,
            cwd=self.house.directory,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(self.random.random() * 0.3)
        submitter.kill()
        submitter.wait()


def hammer(house: House, deeds: int, seed: int) -> None:
    """Wreak havoc, then let it come to rest and see what became of the jobs."""
    (house.home / "config.toml").write_text('[jobs]\ngrace = "500ms"\n')
    house.governor.set_limit("agent", _SLOTS)
    havoc = Havoc(house, seed)
    for _ in range(deeds):
        havoc.wreak()

    jobs = {job.id: job for job in house.jobs.all()}
    assert set(havoc.kept) <= set(jobs)
    for job in jobs:
        house.ended(job)

    violations = house.directory / "violations"
    assert not violations.exists(), violations.read_text()
    assert {house.state(job) for job in jobs} == {"succeeded"}
    for job in jobs:
        attempts = house.jobs.details(job).attempts
        assert [attempt.number for attempt in attempts] == list(range(1, len(attempts) + 1))
        assert all(attempt.ended_at is not None for attempt in attempts)
        assert all(attempt.end_reason for attempt in attempts if attempt.state != "succeeded")
        assert [attempt.state for attempt in attempts].count("succeeded") == 1
    until(lambda: house.holders() == 0, "all slots")
    assert not house.processes()
    assert is_alive(havoc.worker.pid)


def test_a_little_havoc_does_no_harm(house: House) -> None:
    """Every job that was kept succeeds in the end."""
    hammer(house, deeds=60, seed=int.from_bytes(os.urandom(4)))


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(4))
def test_much_havoc_does_no_harm(house: House, seed: int) -> None:
    """The same, a few hundred times."""
    hammer(house, deeds=400, seed=seed)
