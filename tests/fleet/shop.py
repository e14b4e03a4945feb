"""A home on a server with jobs to do: its worker may be killed, and what it does goes on."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.cli.kit import PROGRAM, until

from headway import Governor
from headway.jobs.orders import Order
from headway.jobs.post import Post

if TYPE_CHECKING:
    from pathlib import Path

_END_SECONDS = 240
# Says when it came and when it left, once, and by which token, also when it is asked to end.
_COMMAND = """
say() { echo "$1 $HEADWAY_TOKEN $(date +%s.%N) $HEADWAY_JOB" >> journal; }
trap 'trap "" TERM; say out; exit 1' TERM
say in
sleep 0.0$(($(od -An -N1 -tu1 /dev/urandom) % 10))
trap "" TERM
say out
"""


class Shop:
    """One home, many jobs, and one worker after the other."""

    def __init__(self, directory: Path, url: str, jobs: int) -> None:
        self.directory, self.home = directory, directory / "home"
        self.home.mkdir(mode=0o700, parents=True)
        settings = f'[jobs]\ngrace = "2s"\n[store]\nurl = "{url}"\n'
        (self.home / "config.toml").write_text(settings)
        retry = {"HEADWAY_JOBS_RETRY_DELAY": "0s"}
        self._environ = {**os.environ, **retry, "HEADWAY_HOME": str(self.home)}
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HEADWAY_HOME", str(self.home))
            self._governor = Governor()
        order = Order(
            ["sh", "-c", _COMMAND], keys="k", retries=1000, directory=str(directory), environ={}
        )
        self._jobs = self._governor.jobs
        self._ids = [job.id for job in self._jobs.submit_many([order] * jobs, start=False)]
        self._start()

    def _start(self) -> None:
        with open(self.directory / "worker.log", "ab") as log:
            self.worker = subprocess.Popen(
                [PROGRAM, "worker"], env=self._environ, stdin=subprocess.DEVNULL, stderr=log
            )

    def kill(self) -> None:
        """End the worker as a crash would, and let the next one come."""
        self.worker.kill()
        self.worker.wait()
        until(lambda: Post(str(self.home)).holder() is None, "the end of the worker")
        self._start()

    def go_on(self) -> None:
        """Let another worker come, if this one has given up."""
        if self.worker.poll() is not None:
            self._start()

    def finish(self) -> None:
        """Wait until every job has ended well."""
        for job in self._ids:
            self.go_on()
            assert self._jobs.wait_for(job, timeout=_END_SECONDS).state == "succeeded"

    def journal(self) -> list[str]:
        """What the commands have said."""
        path = self.directory / "journal"
        return path.read_text().splitlines() if path.exists() else []

    def lost(self) -> set[str]:
        """The attempts that were told that their slot is lost."""
        logs = (self.home / "logs").glob("*.*.log")
        return {path.stem for path in logs if b"its slot was lost" in path.read_bytes()}

    def close(self) -> None:
        """Leave nothing behind."""
        if self.worker.poll() is None:
            self.worker.send_signal(signal.SIGQUIT)
            self.worker.wait()
        self._governor.close()
