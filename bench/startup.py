"""What ``import headway`` adds to the start of Python."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

from bench.contenders import KEY
from bench.figure import Effort, Figure, Findings
from bench.report import Aim, Row, Value

BARE = "pass"
FIRST_SLOT = f"""
import headway
with headway.Governor("sqlite:///{{home}}").slot({KEY!r}):
    pass
"""
PEERS = ("portalocker", "filelock", "fasteners", "anyio")


def measure(effort: Effort, directory: str) -> Findings:
    home = os.path.join(directory, "home")
    programs = {
        "headway": "import headway",
        "first slot": FIRST_SLOT.format(home=home),
        **{peer: f"import {peer}" for peer in PEERS},
    }
    added: dict[str, list[float]] = {name: [] for name in programs}
    python = Python(directory)
    for program in (BARE, *programs.values()):
        python.run(program)
    for _ in range(effort.pick(30, 20)):
        bare = python.run(BARE)
        for name, program in programs.items():
            added[name].append(python.run(program) - bare)
    medians: dict[str, Value] = {name: statistics.median(ms) for name, ms in added.items()}
    return Findings(
        [
            Row("import", "ms", medians["headway"], {p: medians[p] for p in PEERS}, Aim(40)),
            Row("import, open a home, first slot", "ms", medians["first slot"]),
        ],
        ["more than a bare Python takes to start and end"],
    )


class Python:
    """Starts programs that find everything compiled after their first run, as when installed."""

    def __init__(self, directory: str) -> None:
        self._environment = {
            **os.environ,
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": os.path.join(directory, "compiled"),
        }

    def run(self, program: str) -> float:
        """How many milliseconds it takes from start to end."""
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", program], check=True, env=self._environment)
        return (time.perf_counter() - started) * 1000


FIGURE = Figure("startup", "import headway, over bare Python", measure)
