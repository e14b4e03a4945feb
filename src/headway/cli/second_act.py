"""The second act of ``headway demo``: jobs that wait by themselves, and a worker that is killed.

Every line that begins with ``$`` is a real command, run in a home of its own, and what
stands below it is what it printed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

from headway.cli import output
from headway.governor import Governor
from headway.jobs.post import Post
from headway.jobs.states import RUNNING, UNFINISHED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Self

    from headway.jobs.listing import Attempt

SLOTS, JOBS = 3, 5


class SecondAct:
    """Five jobs, three slots; ``with`` ends all that it started and removes its home."""

    def __init__(self, say: Callable[[str], None], *, pace: float) -> None:
        self._say, self._pace = say, pace
        self._home = tempfile.mkdtemp(prefix="headway-demo-")
        kept = {k: v for k, v in os.environ.items() if not k.startswith("HEADWAY_")}
        self._environ = {**kept, "HEADWAY_HOME": self._home}
        self._governor = Governor(f"sqlite:///{self._home}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        post = Post(self._home)
        try:
            holder = post.holder()
            if holder is not None:
                os.kill(holder[0], signal.SIGQUIT)
                post.wait_until_free()
            self._governor.close()
        finally:
            shutil.rmtree(self._home, ignore_errors=True)

    def play(self) -> None:
        """Show it, and what became of it."""
        self._say(f"Now without waiting yourself: {JOBS} jobs, {SLOTS} slots, one worker.")
        self._run("limits", "set", "agent", str(SLOTS), shown=False)
        for number in range(1, JOBS + 1):
            script = f"sleep {max(1.5, 2.5 * self._pace):g}; echo fixed"
            words = ["--task", f"issue-{number + 20}", "--retries", "1"]
            self._run("submit", *words, "--", "sh", "-c", script)
        self._await(lambda running, unfinished: running >= min(SLOTS, unfinished))
        self._run("jobs")
        worker = Post(self._home).holder()
        assert worker is not None
        os.kill(worker[0], signal.SIGKILL)
        self._say(f"\nThe worker is killed: kill -9 {worker[0]}. Its jobs end with it, and")
        self._say("queue again at their old places, because --retries allows it.")
        self._await(lambda running, _: running == 0)
        self._run("jobs")
        self._run("wait", *map(str, range(1, JOBS + 1)))
        self._run("jobs")

    def summary(self) -> list[tuple[str, str]]:
        """Measured figures and their meaning; raises nothing, see ``broken``."""
        attempts = self._attempts()
        return [
            (f"{JOBS} of {JOBS}", "jobs succeeded, though their worker was killed"),
            (f"{_peak(attempts)} at once", f"at most, and {SLOTS} is the limit"),
            (f"{len(attempts)} attempts", f"for {JOBS} jobs, and no job ran beside itself"),
        ]

    def broken(self) -> list[str]:
        """What was not as promised."""
        jobs, problems = self._governor.jobs.all(), []
        problems += [f"job {job.id} {job.state}" for job in jobs if job.state != "succeeded"]
        problems += [] if len(jobs) == JOBS else [f"{len(jobs)} jobs instead of {JOBS}"]
        peak = _peak(self._attempts())
        problems += [f"{peak} ran at once"] if peak > SLOTS else []
        problems += [
            f"job {job.id} ran beside itself" for job in jobs if _peak(self._of(job.id)) > 1
        ]
        return problems

    def _await(self, is_so: Callable[[int, int], bool]) -> None:
        """Wait until it is so with those that run and those unfinished; each change rings."""
        jobs = self._governor.jobs
        with jobs.watch() as bell:
            while True:
                counts = jobs.counts()
                if is_so(counts.get(RUNNING, 0), sum(counts.get(state, 0) for state in UNFINISHED)):
                    return
                bell.wait(0.5)

    def _attempts(self) -> list[Attempt]:
        return [one for job in self._governor.jobs.all() for one in self._of(job.id)]

    def _of(self, job: int) -> list[Attempt]:
        return list(self._governor.jobs.details(job).attempts)

    def _run(self, *words: str, shown: bool = True) -> None:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "headway", *words],
            env=self._environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if shown:
            self._say(f"\n$ headway {shlex.join(words)}")
            for line in (done.stdout + done.stderr).splitlines():
                self._say(output.fit(f"  {line}"))


def _peak(attempts: Iterable[Attempt]) -> int:
    """How many of them ran at once, at most."""
    moments = [(one.started_at, 1) for one in attempts]
    moments += [(one.ended_at, -1) for one in attempts if one.ended_at is not None]
    running = most = 0
    for _, change in sorted(moments):
        running += change
        most = max(most, running)
    return most
