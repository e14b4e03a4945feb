"""What standing in front of a command costs: ``headway run -- true`` and its peers."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time

from bench.figure import Effort, Figure, Findings
from bench.report import Aim, Row, Value

PYTHON = "python -c pass"
HEADWAY = [os.path.join(os.path.dirname(sys.executable), "headway"), "run", "--", "true"]
# Peers that are not on this machine are left out of the table.
PEERS = {
    "sem": ["sem", "--fg", "--id", "headway-bench", "--jobs", "3", "true"],
    "tsp": ["tsp", "-f", "true"],
}
SETTINGS = '[limits]\nagent = 4\n"llm/*" = 20\n'


def measure(effort: Effort, directory: str) -> Findings:
    fresh, settled = (os.path.join(directory, name) for name in ("fresh", "settled"))
    os.mkdir(settled)
    with open(os.path.join(settled, "config.toml"), "w", encoding="ascii") as file:
        file.write(SETTINGS)
    commands = {
        "headway": (HEADWAY, {"HEADWAY_HOME": fresh}),
        "headway, with settings": (HEADWAY, {"HEADWAY_HOME": settled}),
        PYTHON: ([sys.executable, "-c", "pass"], {}),
        **{
            name: (command, {"HOME": directory, "TS_SOCKET": os.path.join(directory, "tsp")})
            for name, command in PEERS.items()
            if shutil.which(command[0])
        },
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    try:
        for round_ in range(effort.pick(40, 15) + 1):
            for name, (command, extra) in commands.items():
                spent = _run(command, directory, extra)
                if round_:  # the first one compiles, and makes its home
                    times[name].append(spent)
    finally:
        if "tsp" in commands:
            _run(["tsp", "-K"], directory, commands["tsp"][1])
    medians: dict[str, Value] = {name: statistics.median(seen) for name, seen in times.items()}
    own, with_settings = medians.pop("headway"), medians.pop("headway, with settings")
    return Findings(
        [
            Row("true, on an idle home", "ms", own, medians, Aim(3, PYTHON)),
            Row("with a config.toml to read", "ms", with_settings, {PYTHON: medians[PYTHON]}),
        ]
    )


def _run(command: list[str], directory: str, extra: dict[str, str]) -> float:
    environment = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": os.path.join(directory, "compiled"),
        **extra,
    }
    started = time.perf_counter()
    subprocess.run(
        command,
        env=environment,
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return (time.perf_counter() - started) * 1000


FIGURE = Figure("command", "a command that does nothing, from start to end", measure)
