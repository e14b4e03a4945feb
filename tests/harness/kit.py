"""Scripted stand-ins for the agent programs, and a look at what really runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from typing import TYPE_CHECKING, Any

from tests.cli.kit import is_alive, until

from headway.harness import ClaudeCode, Codex, Command, Gemini, Harness, OpenCode
from headway.harness.events import AgentEvent, Finished

if TYPE_CHECKING:
    from pathlib import Path

    from headway.harness import Result

__all__ = ["HARNESSES", "Diary", "Stage", "is_alive", "until"]
PATIENCE_SECONDS = 60.0
HARNESSES: dict[str, type[Harness]] = {
    "opencode": OpenCode,
    "claude": ClaudeCode,
    "codex": Codex,
    "gemini": Gemini,
}
# Says whose process it is, in the environment of all that a test starts.
_STAGE = "STAGE"
# As ``opencode db path``: makes the data ready and says where they are.
_WARM = """
if [ "$1" = db ]; then
    mkdir -p "$XDG_DATA_HOME/opencode"
    : >> "$XDG_DATA_HOME/opencode/opencode.db"
    echo "$XDG_DATA_HOME/opencode/opencode.db"
    exit
fi"""


class Stage:
    """Stand-ins, written as shell scripts, and the processes that come of them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._bin = directory / "bin"
        self._bin.mkdir(exist_ok=True)
        self.environ = {
            _STAGE: str(directory),
            "XDG_DATA_HOME": str(directory / "data"),
            "GEMINI_CLI_HOME": str(directory),
            "HERE": str(directory),
        }
        self._programs: list[subprocess.Popen[str]] = []

    def script(self, name: str, text: str, first: str = "#!/bin/sh") -> str:
        """A program of this name; its path."""
        path = self._bin / name
        if name == "opencode" and first == "#!/bin/sh":
            text = f"{_WARM}\n{text}"
        path.write_text(f"{first}\n{text}\n")
        path.chmod(0o755)
        return str(path)

    def agent(self, name: str, text: str, **options: Any) -> Harness:
        """A harness whose program is this script."""
        environ = {**self.environ, **options.pop("env", {})}
        chosen = {"grace": "2s", "executable": self.script(name, text), "env": environ, **options}
        if name in HARNESSES:
            return HARNESSES[name](**chosen)
        return Command(chosen.pop("executable"), **chosen)

    # -- what runs --------------------------------------------------------------------------

    def processes(self, *, named: str = "") -> list[int]:
        """All that lives of what this test started, or those that run one script of it.

        Not those that the script has forked and that are about to become another program.
        """
        mark = os.fsencode(f"{_STAGE}={self.directory}")
        path = os.fsencode(self._bin / named)
        found = []
        for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
            if pid == os.getpid() or not is_alive(pid) or mark not in _words(pid, "environ"):
                continue
            words = _words(pid, "cmdline")
            # An interpreter with the script, and not the guardian, which has it further on.
            if not named or path in words[:2]:
                found.append(pid)
        return [pid for pid in found if not named or parent(pid) not in found]

    def file(self, name: str) -> str:
        """A line that a stand-in has written to a file, waited for."""
        path = self.directory / name
        until(lambda: path.exists() and path.read_text().endswith("\n"), name)
        return path.read_text().strip()

    def lines(self, name: str) -> list[str]:
        """What stand-ins have written to a file so far."""
        path = self.directory / name
        return path.read_text().splitlines() if path.exists() else []

    def touch(self, name: str) -> None:
        """Make the file for which a stand-in waits."""
        (self.directory / name).touch()

    def gone(self) -> None:
        """Wait until nothing of it runs."""
        until(lambda: not self.processes(), "the end of all stand-ins")

    # -- callers in processes of their own -----------------------------------------------------

    def caller(self, code: str, *arguments: str, **environ: str) -> subprocess.Popen[str]:
        """A Python program that uses the harness; it begins with ``stage`` and the imports."""
        prelude = f"""
            import asyncio, os, signal, sys, threading, time
            from pathlib import Path
            sys.path.insert(0, {os.getcwd()!r})
            from tests.harness.kit import Stage
            import headway
            from headway.harness import *
            stage = Stage(Path({str(self.directory)!r}))
        """
        program = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(prelude) + textwrap.dedent(code), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environ},
            start_new_session=True,
        )
        self._programs.append(program)
        return program

    def close(self) -> None:
        """End what the test has left; it should have been nothing."""
        for program in self._programs:
            if program.poll() is None:
                program.kill()
            program.communicate()
        try:
            self.gone()
        except AssertionError:
            for pid in self.processes():
                os.kill(pid, signal.SIGKILL)
            raise


class Diary:
    """Takes events down, and says when one came."""

    def __init__(self) -> None:
        self.events: list[AgentEvent] = []
        self._changed = threading.Condition()

    def __call__(self, event: AgentEvent) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    @property
    def kinds(self) -> list[str]:
        """What came, in order, with what comes again at once said once."""
        kinds = [event.kind for event in self.events]
        return [kind for i, kind in enumerate(kinds) if i == 0 or kinds[i - 1] != kind]

    def has(self, kind: str) -> bool:
        """Whether there was such an event."""
        return any(event.kind == kind for event in self.events)

    def wait_for(self, kind: str) -> None:
        """Wait until there was such an event, in another thread than it comes in."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.has(kind), PATIENCE_SECONDS), self.kinds

    @property
    def result(self) -> Result:
        """The one that was told last."""
        assert isinstance(self.events[-1], Finished)
        return self.events[-1].result


def parent(pid: int) -> int:
    """The pid of the parent; 0 if the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def _words(pid: int, what: str) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/{what}", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []
