"""GNU ``sem``: a peer that guards commands, and polls from each of them."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
from contextlib import suppress
from typing import Self

ANSWER_SECONDS = 20.0


def installed() -> bool:
    return shutil.which("sem") is not None


class Sem:
    """A limit of one. Everything it runs writes its lines to one pipe, in order."""

    def __init__(self, directory: str) -> None:
        self._gate = os.path.join(directory, "gate")
        os.mkfifo(self._gate)
        self._environment = {**os.environ, "HOME": directory, "PARALLEL_HOME": directory}
        self._reading, self._writing = os.pipe()
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._running:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()
            process.wait()
        os.close(self._reading)
        os.close(self._writing)

    def hold(self) -> None:
        """Take the slot, and keep it until ``release``."""
        self._start(f"echo held; read line < {self._gate}")
        self.next_line()

    def release(self) -> None:
        """Let the holder end. Bounded: the holder reads already, or is about to."""
        with open(self._gate, "w", encoding="ascii") as gate:
            gate.write("\n")

    def queue(self, line: str) -> None:
        """Have a line written as soon as it is this command's turn."""
        self._start(f"echo {line}")

    def next_line(self) -> str:
        """The next line that one of them wrote."""
        line = b""
        while not line.endswith(b"\n"):
            if not select.select([self._reading], [], [], ANSWER_SECONDS)[0]:
                raise TimeoutError("sem has not answered")
            line += os.read(self._reading, 1)
        return line.decode().strip()

    def _start(self, command: str) -> None:
        self._running.append(
            subprocess.Popen(
                ["sem", "--fg", "--ungroup", "--id", "headway-bench", "--jobs", "1", command],
                stdin=subprocess.DEVNULL,
                stdout=self._writing,
                stderr=subprocess.DEVNULL,
                env=self._environment,
            )
        )
