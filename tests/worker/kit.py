"""A home with a worker in a process of its own, and jobs that tell what happens to them."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING, Any

from tests.cli.kit import PROGRAM, is_alive, until

from headway import Governor
from headway.jobs.post import Post

if TYPE_CHECKING:
    from pathlib import Path

    from headway.jobs.listing import Job
    from headway.jobs.submitted import Submitted

__all__ = ["PROGRAM", "House", "is_alive", "kill", "until"]
_PATIENCE_SECONDS = 60.0


class House:
    """One home, its governor in this process, and its workers in others."""

    def __init__(self, directory: Path, settings: str = "") -> None:
        self.directory, self.home = directory, directory / "home"
        self.home.mkdir(mode=0o700)
        usual = '[jobs]\ngrace = "1s"\nretry_delay = "0s"\n'
        (self.home / "config.toml").write_text(settings or usual)
        self.environ = {
            **{k: v for k, v in os.environ.items() if not k.startswith("HEADWAY_")},
            "HEADWAY_HOME": str(self.home),
            "HEADWAY_JOBS_RETRY_DELAY": "0s",
        }
        self.governor = Governor(f"sqlite:///{self.home}")
        self.jobs = self.governor.jobs
        self._workers: list[subprocess.Popen[str]] = []

    def worker(self, *options: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        """Start a worker and wait until it is at its post."""
        process = subprocess.Popen(
            [PROGRAM, "worker", *options],
            env={**self.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._workers.append(process)
        post = Post(str(self.home))
        until(lambda: (post.holder() or (0,))[0] == process.pid, "a worker")
        return process

    def run(self, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """``headway WORDS`` to its end."""
        return subprocess.run(
            [PROGRAM, *words],
            env=self.environ,
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_SECONDS,
            check=False,
            **{"stdin": subprocess.DEVNULL, **options},
        )

    def submit(self, script: str, **options: Any) -> int:
        """Keep a shell script as a job, in the directory of this test; its id."""
        return self.keep(["sh", "-c", script], **options).id

    def keep(self, command: list[str], **options: Any) -> Submitted:
        """Keep a command as a job that needs a worker of this house."""
        chosen = {"directory": str(self.directory), "keys": "agent/test", **options}
        return self.jobs.submit(command, start=False, **chosen)

    def ended(self, job: int) -> Job:
        """Wait for a job's end."""
        return self.jobs.wait_for(job, timeout=_PATIENCE_SECONDS)

    def state(self, job: int) -> str:
        """The state that a job is in."""
        return self.jobs.get(job).state

    def running(self, job: int) -> Job:
        """Wait until a job runs."""
        found: Job = until(
            lambda: job_ if (job_ := self.jobs.get(job)).state == "running" else None,
            f"the start of job {job}",
        )
        return found

    def output(self, job: int) -> str:
        """What the last attempt of a job has written."""
        return b"".join(self.jobs.output(job)).decode()

    def supervisor(self, job: int) -> int:
        """The pid of the supervisor of a job that runs."""
        return self.jobs.details(job).attempts[-1].pid

    def nursery(self, worker: subprocess.Popen[str]) -> int:
        """The pid of a worker's nursery."""
        pids = until(lambda: _children(worker.pid), "a nursery")
        return int(pids[0])

    def file(self, name: str) -> str:
        """A file that a job has made, waited for."""
        path = self.directory / name
        until(lambda: path.exists() and path.read_text().endswith("\n"), name)
        return path.read_text().strip()

    def processes(self) -> list[int]:
        """Everything that bears the mark of a job of this home."""
        found = []
        for name in os.listdir("/proc"):
            if name.isdecimal():
                environ = _environ(name)
                if any(one.startswith(b"HEADWAY_JOB=") for one in environ) and (
                    f"HEADWAY_HOME={self.home}".encode() in environ
                ):
                    found.append(int(name))
        return found

    def holders(self) -> int:
        """How many slots are in use on everything that jobs count on here."""
        return self.governor.capacity("agent/test").used

    def close(self) -> None:
        """End the workers and all they started; nothing may be left."""
        for process in self._workers:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.send_signal(signal.SIGQUIT)
            process.communicate(timeout=_PATIENCE_SECONDS)
        holder = Post(str(self.home)).holder()
        if holder is not None:  # one that `submit` has started
            os.kill(holder[0], signal.SIGQUIT)
            Post(str(self.home)).wait_until_free()
        until(lambda: not self.processes(), "the end of all jobs")
        self.governor.close()


def kill(pid: int) -> None:
    """``kill -9``, and wait until it is gone."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    until(lambda: not is_alive(pid), f"the end of {pid}")


def _children(pid: int) -> list[str]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return file.read().split()
    except OSError:
        return []


def _environ(pid: str) -> set[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return set(file.read().split(b"\0"))
    except OSError:
        return set()
