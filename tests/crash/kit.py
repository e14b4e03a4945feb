"""Starting real processes, talking to them in lines, and never leaving one behind."""

from __future__ import annotations

import contextlib
import functools
import os
import select
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from typing import TYPE_CHECKING

import pytest
from tests.crash import actor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

# How long a line may take that will surely come. Only a hang waits so long.
PATIENCE_SECONDS = float(os.environ.get("CRASH_PATIENCE_SECONDS", "30"))


class Child:
    """A process that prints a line for everything it does."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed in clean_up
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=dict(environ),
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._unread = b""
        self._transcript: list[str] = []

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self, line: str = "") -> None:
        """Send it a line."""
        self._stdin.write(line.encode() + b"\n")
        self._stdin.flush()

    def line(self) -> str:
        """The next line it says."""
        line = self.line_within(PATIENCE_SECONDS)
        assert line is not None, f"nothing came; {self.report()}"
        return line

    def line_within(self, seconds: float) -> str | None:
        """The next line it says, if one comes in time."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self._unread:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._stdout], [], [], left)[0]:
                return None
            more = os.read(self._stdout.fileno(), 65536)
            assert more, f"it ended; {self.report()}"
            self._unread += more
        raw, _, self._unread = self._unread.partition(b"\n")
        self._transcript.append(raw.decode(errors="replace"))
        return self._transcript[-1]

    def expect(self, beginning: str) -> str:
        """The rest of the next line, which must begin so."""
        line = self.line()
        assert line.startswith(beginning), f"wanted {beginning!r}, got {line!r}; {self.report()}"
        return line[len(beginning) :].strip()

    def ask(self, line: str, beginning: str) -> str:
        """Send a line and read the answer."""
        self.tell(line)
        return self.expect(beginning)

    def report(self) -> str:
        """What it said and logged, for a message about a failure."""
        return f"pid {self.pid} said {self._transcript} {self._unread!r}\nlogged {self.logged()}"

    def logged(self) -> str:
        """What it has written to its error output so far."""
        length = os.fstat(self._stderr.fileno()).st_size
        return os.pread(self._stderr.fileno(), length, 0).decode(errors="replace")

    def unread(self) -> str:
        """What it has said that nobody has read, once it has ended."""
        while more := os.read(self._stdout.fileno(), 65536):
            self._unread += more
        return self._unread.decode(errors="replace")

    def kill(self) -> None:
        """End it by SIGKILL; gone when this returns."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Freeze it; frozen when this returns."""
        self.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def wake(self) -> None:
        """Let it go on after ``stop``."""
        self.signal(signal.SIGCONT)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def ended(self) -> int:
        """Wait for its end; its code."""
        return self._process.wait(PATIENCE_SECONDS)

    def cpu_seconds(self) -> float:
        """User and system time that it has used so far."""
        with open(f"/proc/{self.pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def clean_up(self) -> None:
        """End it and whatever it started in its session."""
        if self._process.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
        # Grandchildren that outlive it end when their input does.
        self._stdin.close()
        self._stdout.close()
        self._stderr.close()


class Crew:
    """All the processes of one test, on one home."""

    def __init__(self, home: Path, scratch: Path) -> None:
        self.home, self.scratch = home, scratch
        self._children: list[Child] = []

    def limits(self, **limits: int) -> None:
        """Write the limits into the home's file; ``__`` stands for a slash."""
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        lines = [f'"{key.replace("__", "/")}" = {slots}' for key, slots in limits.items()]
        (self.home / "config.toml").write_text("[limits]\n" + "\n".join(lines) + "\n")

    def environ(self, **changes: str) -> dict[str, str]:
        """The variables of a child."""
        kept = {name: value for name, value in os.environ.items() if "HEADWAY" not in name}
        # The copy of Headway that this process tests is the one that its children run.
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        kept["PYTHONPATH"] = os.pathsep.join(filter(None, [kept.get("PYTHONPATH"), root]))
        return {**kept, "HEADWAY_HOME": str(self.home), "PYTHONFAULTHANDLER": "1", **changes}

    def start(self, code: str, *, before: Sequence[str] = (), **environ: str) -> Child:
        """Run this code in a process of its own, perhaps by way of another command."""
        command = [*before, sys.executable, "-u", actor.__file__, textwrap.dedent(code)]
        child = Child(command, self.environ(**environ))
        self._children.append(child)
        return child

    def holder(self, *keys: str, **environ: str) -> Child:
        """A process that takes these keys, says ``holding ID``, and leaves when told to."""
        return self.start(
            f"""
            governor = headway.Governor()
            with governor.slot(*{keys!r}) as lease:
                say("holding", lease.id)
                hear()
                lease.check()
            say("left")
            hear()
            """,
            **environ,
        )

    def holding(self, *keys: str, **environ: str) -> Child:
        """The same, and it has them."""
        child = self.holder(*keys, **environ)
        child.expect("holding")
        return child

    def waiter(self, *keys: str, **environ: str) -> Child:
        """A process that is in line for these keys; it says ``granted``, and leaves when told."""
        child = self.start(
            f"""
            governor = headway.Governor()
            with governor.slot(*{keys!r}, on_wait=queued):
                say("granted")
                hear()
            say("left")
            hear()
            """,
            **environ,
        )
        child.expect("waiting")
        return child

    def wait_until_moved(self, child: Child) -> None:
        """Wait until a child has the file open that is ``slots.db`` now."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                wanted = os.stat(self.home / "slots.db").st_ino
                opened = f"/proc/{child.pid}/fd"
                if wanted in {os.stat(f"{opened}/{name}").st_ino for name in os.listdir(opened)}:
                    return
            time.sleep(0.01)
        raise AssertionError(f"it did not move over; {child.report()}")

    def watcher(self) -> Child:
        """A process that looks at the store and answers ``audit`` and ``take-all KEY SLOTS``."""
        child = self.start(WATCHER)
        child.expect("ready")
        return child

    def clean_up(self) -> None:
        for child in self._children:
            child.clean_up()


WATCHER = """
from tests.crash.audit import audit, take_all

governor = headway.Governor()
say("ready")
while True:
    order = hear().split()
    if order[0] == "audit":
        say("audited", audit(governor))
    elif order[0] == "take-all":
        take_all(governor, {order[1]: int(order[2])})
        say("took all")
    elif order[0] == "waiting":
        say("waiting", len(governor.snapshot().waiting))
    elif order[0] == "leases":
        say("leases", len(governor.snapshot().leases))
"""


@functools.cache
def unshare(*options: str) -> list[str]:
    """The command that gives a child namespaces of its own; skips where it is not allowed."""
    refused = ""
    for user in ([], ["--user", "--map-root-user"]):
        command = ["unshare", *user, *options, "--"]
        try:
            tried = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
        except FileNotFoundError:
            pytest.skip("there is no unshare here")
        if tried.returncode == 0:
            return command
        refused = tried.stderr.strip()
    pytest.skip(f"this platform allows no namespaces: {refused}")


def lead_to_line(child: Child, beginning: str) -> str:
    """Read past other lines until one begins so; the rest of it."""
    while True:
        line = child.line()
        if line.startswith(beginning):
            return line[len(beginning) :].strip()
