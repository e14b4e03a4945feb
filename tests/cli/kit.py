"""Runs the installed ``headway`` as people do: in a process of its own, or on a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

PROGRAM = os.path.join(os.path.dirname(sys.executable), "headway")
_PATIENCE_SECONDS = 60.0
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\x1b[()=>][A-Z0-9]?")

_AGENT = """
import contextvars, json, sys, threading, headway

keys, options = (json.loads(word) for word in sys.argv[1:])
then = options.pop("then", None)
try:
    with headway.slot(*keys, **options) as lease:
        print(lease.id, flush=True)
        if then and sys.stdin.readline():
            enter = headway.slot(*then).__enter__
            inherited = contextvars.copy_context().run
            threading.Thread(target=inherited, args=(enter,), daemon=True).start()
        for line in sys.stdin:
            try:
                lease.check()
                print("held", flush=True)
            except headway.LeaseLost:
                print("lost", flush=True)
except headway.HeadwayError as error:
    print(type(error).__name__, flush=True)
"""


def until(ready: Callable[[], Any], what: str = "it") -> Any:
    """Wait until the call answers with something true; that is the answer."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        answer = ready()
        if answer:
            return answer
        time.sleep(0.01)
    raise AssertionError(f"{what} did not happen within {_PATIENCE_SECONDS:g} s")


def is_alive(pid: int) -> bool:
    """Whether a process is there and not only its exit code."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in b"ZX"
    except OSError:
        return False


class Shell:
    """A person with one home, who starts programs and sees what they print."""

    def __init__(self, home: Path, directory: Path) -> None:
        self.home, self.directory = home, directory
        self.environ = {
            **{k: v for k, v in os.environ.items() if not k.startswith("HEADWAY_")},
            "HEADWAY_HOME": str(home),
            "HOME": str(directory),
            "PATH": os.path.dirname(PROGRAM) + os.pathsep + os.environ["PATH"],
            "COLUMNS": "80",
        }
        self.environ.pop("NO_COLOR", None)
        self._started: list[subprocess.Popen[str]] = []
        self._terminals: list[Terminal] = []

    def run(
        self, *words: str, env: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """``headway WORDS`` to its end."""
        return subprocess.run(
            [PROGRAM, *words],
            env={**self.environ, **(env or {})},
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_SECONDS,
            check=False,
            **{"stdin": subprocess.DEVNULL, **options},
        )

    def start(
        self, *words: str, env: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[str]:
        """``headway WORDS`` in the background, its output in pipes."""
        process = subprocess.Popen(
            [PROGRAM, *words],
            env={**self.environ, **(env or {})},
            cwd=self.directory,
            text=True,
            **{
                "stdin": subprocess.DEVNULL,
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
                **options,
            },
        )
        self._started.append(process)
        return process

    def hold(self, *keys: str, **options: Any) -> subprocess.Popen[str]:
        """A program that asks for a slot and keeps it until its stdin is closed.

        It prints the lease's id when it has one, for each line whether the lease is
        lost, and instead of all that the name of an error. With ``then=[KEY]`` a thread
        that inherits its context asks for that too, when it gets a line.
        """
        script = self.directory / "agent.py"
        if not script.exists():
            script.write_text(_AGENT)
        process = subprocess.Popen(
            [sys.executable, str(script), json.dumps(keys), json.dumps(options)],
            env=self.environ,
            cwd=self.directory,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._started.append(process)
        return process

    def holding(self, *keys: str, **options: Any) -> str:
        """Start such a program and wait for its slot; the lease's id."""
        process = self.hold(*keys, **options)
        assert process.stdout
        return process.stdout.readline().strip()

    def waiting(self, *keys: str, **options: Any) -> str:
        """Start such a program and wait until it queues; the ticket's id."""
        known = {ticket["id"] for ticket in self.status()["waiting"]}
        self.hold(*keys, **options)
        new = until(lambda: {x["id"] for x in self.status()["waiting"]} - known, "a wait")
        (ticket_id,) = new
        return str(ticket_id)

    def terminal(
        self, *words: str, env: Mapping[str, str] | None = None, columns: int = 80, rows: int = 24
    ) -> Terminal:
        """``headway WORDS`` on a terminal of its own."""
        return self.terminal_for(PROGRAM, *words, env=env, columns=columns, rows=rows)

    def terminal_for(
        self, *command: str, env: Mapping[str, str] | None = None, columns: int = 80, rows: int = 24
    ) -> Terminal:
        """Any program, such as a shell, on a terminal of its own."""
        environ = {**self.environ, "TERM": "xterm-256color", **(env or {})}
        environ.pop("COLUMNS")
        terminal = Terminal(command, environ, str(self.directory), columns, rows)
        self._terminals.append(terminal)
        return terminal

    def status(self) -> dict[str, Any]:
        """What ``headway status --json`` says."""
        answer: dict[str, Any] = json.loads(self.run("status", "--json").stdout)
        return answer

    def holds(self, count: int) -> Callable[[], bool]:
        """Whether so many leases are held, for ``until``."""
        return lambda: len(self.status()["leases"]) == count

    def waits(self, count: int) -> Callable[[], bool]:
        """Whether so many tickets wait, for ``until``."""
        return lambda: len(self.status()["waiting"]) == count

    def clean_up(self) -> None:
        """End everything that was started here."""
        for terminal in self._terminals:
            terminal.close()
        for process in self._started:
            if process.poll() is None:
                process.kill()
            if process.stdin and process.stdin.closed:
                process.stdin = None
            process.communicate()


class Terminal:
    """A program on a pseudo-terminal: what it shows, and keys to press."""

    def __init__(
        self, command: tuple[str, ...], environ: dict[str, str], cwd: str, columns: int, rows: int
    ) -> None:
        self.pid, self._descriptor = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execvpe(command[0], command, environ)  # noqa: S606 - in the child, on its terminal
        self.resize(columns, rows)
        self.raw = ""
        self._code: int | None = None

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of the window."""
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys: str) -> None:
        r"""Type; ``\x03`` is Ctrl-C and ``\x1a`` is Ctrl-Z."""
        os.write(self._descriptor, keys.encode())

    @property
    def text(self) -> str:
        """All that was shown so far, without colours and cursor movements."""
        self._drain()
        return _ESCAPES.sub("", self.raw)

    def wait_for(self, text: str) -> None:
        """Wait until this has been shown."""
        try:
            until(lambda: text in self.text)
        except AssertionError:
            raise AssertionError(f"{text!r} was not shown; this was:\n{self.text}") from None

    def wait(self) -> int:
        """The exit code, as a shell would see it."""
        until(self._is_over, "the end of the program")
        self._drain()
        assert self._code is not None
        return self._code

    def _is_over(self) -> bool:
        self._drain()
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                self._code = code if code >= 0 else 128 - code
        return self._code is not None

    def _drain(self) -> None:
        while self._descriptor >= 0 and select.select([self._descriptor], [], [], 0)[0]:
            try:
                read = os.read(self._descriptor, 65536)
            except OSError:  # the last one has closed it
                return
            if not read:
                return
            self.raw += read.decode(errors="replace")

    def hang_up(self) -> None:
        """Close the window."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def close(self) -> None:
        """End the program, if need be, and take the terminal away."""
        if not self._is_over():
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        self.hang_up()
