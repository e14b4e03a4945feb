"""Jobs: how fast they are kept and started, and what very many of them cost."""

from __future__ import annotations

import itertools
import os
import shutil
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psutil

from bench.figure import Effort, Figure, Findings
from bench.report import Aim, Row, Value
from headway import Governor
from headway.jobs.orders import Order
from headway.jobs.post import Post

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = os.path.join(os.path.dirname(sys.executable), "headway")
PYTHON = "python -c pass"
MANY = 10_000
# Says when it began and when it is about to end.
STAMP = ["bash", "-c", "echo $EPOCHREALTIME; sleep 0.05; echo $EPOCHREALTIME"]


# -- keeping ----------------------------------------------------------------------------------


def measure_keeping(effort: Effort, directory: str) -> Findings:
    count = effort.pick(2000, 300)
    os.environ["HEADWAY_QUEUE_MAX_JOBS"] = "1000000"
    with Governor(f"sqlite:///{directory}/home") as governor:
        jobs = governor.jobs
        jobs.submit(["true"], start=False)
        single = _rate(lambda: [jobs.submit(["true"], start=False) for _ in range(count)], count)
        batch = 10 * count
        batched = _rate(
            lambda: jobs.submit_many([Order(["true"]) for _ in range(batch)], start=False), batch
        )
    synced = _rate(lambda: _synced_writes(directory, count), count)
    rows = [
        Row(
            "one after the other",
            "jobs/s",
            single,
            {"huey": _huey(directory, count, synced=False)},
            Aim(2500, at_least=True),
        ),
        Row(
            "the same, huey on disk before it returns",
            "jobs/s",
            single,
            {"huey": _huey(directory, count, synced=True)},
        ),
        Row("in batches", "jobs/s", batched, aim=Aim(20_000, at_least=True)),
        Row("what the disk can do: small writes, synced", "1/s", synced),
    ]
    return Findings(rows, ["huey keeps jobs without waiting for the disk unless told to"])


def _rate(work: object, count: int) -> float:
    started = time.perf_counter()
    work()  # type: ignore[operator]
    return count / (time.perf_counter() - started)


def _synced_writes(directory: str, count: int) -> None:
    descriptor = os.open(os.path.join(directory, "synced"), os.O_RDWR | os.O_CREAT, 0o600)
    for number in range(count):
        os.pwrite(descriptor, b"x" * 4096, number % 64 * 4096)
        os.fdatasync(descriptor)
    os.close(descriptor)


def _huey(directory: str, count: int, *, synced: bool) -> Value:
    try:
        from huey import SqliteHuey  # noqa: PLC0415
    except ImportError:
        return "not installed"
    huey = SqliteHuey(filename=os.path.join(directory, f"huey-{synced}.db"), fsync=synced)
    task = huey.task()(_nothing)
    return _rate(lambda: [task() for _ in range(count)], count)


def _nothing() -> None:
    pass


# -- starting ---------------------------------------------------------------------------------


def measure_starting(effort: Effort, directory: str) -> Findings:
    rounds = effort.pick(40, 12)
    home = os.path.join(directory, "home")
    with _worker(home), Governor(f"sqlite:///{home}") as governor:
        governor.set_limit("agent", 1)
        first, gaps = _headway_times(governor, rounds)
        command = _command_times(home, directory, rounds)
    peers_first: dict[str, Value] = {}
    peers_gaps: dict[str, Value] = {}
    if shutil.which("tsp"):
        peers_first["tsp"], peers_gaps["tsp"] = _tsp_times(directory, rounds)
    own, python = command
    return Findings(
        [
            Row("submit to running, idle queue", "ms", first, peers_first, Aim(15)),
            Row("end to next running, one slot", "ms", gaps, peers_gaps, Aim(5)),
            Row("headway submit, worker running", "ms", own, {PYTHON: python}, Aim(3, PYTHON)),
        ],
        ["until the job itself says that it runs, so the start of bash is in all of them"],
    )


def _headway_times(governor: Governor, rounds: int) -> tuple[float, float]:
    jobs, firsts = governor.jobs, []
    jobs.wait_for(jobs.submit(STAMP, start=False).id)
    for _ in range(rounds):
        submitted_at = time.time()
        job = jobs.submit(STAMP, start=False).id
        jobs.wait_for(job)
        firsts.append(_stamps(b"".join(jobs.output(job)))[0] - submitted_at)
    line = [jobs.submit(STAMP, start=False).id for _ in range(rounds)]
    jobs.wait_for(line[-1])
    return _ms(firsts), _ms(_gaps([_stamps(b"".join(jobs.output(job))) for job in line]))


def _tsp_times(directory: str, rounds: int) -> tuple[float, float]:
    environ = {**os.environ, "TS_SOCKET": os.path.join(directory, "tsp"), "TMPDIR": directory}

    def tsp(*words: str) -> str:
        done = subprocess.run(
            ["tsp", *words], env=environ, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    try:
        tsp("-w", tsp(*STAMP))
        firsts = []
        for _ in range(rounds):
            submitted_at = time.time()
            job = tsp(*STAMP)
            tsp("-w", job)
            firsts.append(_stamps(tsp("-c", job).encode())[0] - submitted_at)
        line = [tsp(*STAMP) for _ in range(rounds)]
        tsp("-w", line[-1])
        return _ms(firsts), _ms(_gaps([_stamps(tsp("-c", job).encode()) for job in line]))
    finally:
        tsp("-K")


def _command_times(home: str, directory: str, rounds: int) -> tuple[float, float]:
    environ = {
        **os.environ,
        "HEADWAY_HOME": home,
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": os.path.join(directory, "compiled"),
    }
    commands = {
        "own": [PROGRAM, "submit", "--hold", "--", "true"],
        PYTHON: [sys.executable, "-c", "pass"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for round_ in range(rounds + 1):
        for name, command in commands.items():
            started = time.perf_counter()
            subprocess.run(command, env=environ, check=True, stdout=subprocess.DEVNULL)
            if round_:  # the first one compiles
                times[name].append(time.perf_counter() - started)
    return _ms(times["own"]), _ms(times[PYTHON])


def _stamps(output: bytes) -> tuple[float, float]:
    first, last = output.split()
    return float(first), float(last)


def _gaps(stamps: list[tuple[float, float]]) -> list[float]:
    return [start - end for (_, end), (start, _) in itertools.pairwise(stamps)]


def _ms(seconds: list[float]) -> float:
    return statistics.median(seconds) * 1000


# -- very many --------------------------------------------------------------------------------


def measure_many(effort: Effort, directory: str) -> Findings:
    count, home = effort.pick(MANY, 2000), os.path.join(directory, "home")
    with Governor(f"sqlite:///{home}") as governor, governor.slot("agent/full", weight=3):
        jobs = governor.jobs
        jobs.submit_many([Order(["true"]) for _ in range(count)], start=False)
        with _worker(home) as worker:
            while governor.capacity("agent").waiting < count:
                time.sleep(0.05)
            time.sleep(2.0)
            tree = [worker, *worker.children(recursive=True)]
            memory = worker.memory_info().rss / 1e6
            busy = _busy_share(tree, effort.pick(10.0, 3.0))
            listing = statistics.median(_listing(home) for _ in range(effort.pick(10, 4)))
            processes = len(tree)
    return Findings(
        [
            Row("memory of the worker", "MB", memory, aim=Aim(80)),
            Row("share of one processor, nothing happening", "%", busy, aim=Aim(1)),
            Row("processes, the worker's own included", "", float(processes), aim=Aim(4)),
            Row("headway jobs", "ms", listing, aim=Aim(300)),
        ],
        [f"{count:,} jobs in the queue"],
    )


def _busy_share(processes: list[psutil.Process], seconds: float) -> float:
    def used() -> float:
        return sum(sum(process.cpu_times()[:2]) for process in processes)

    before = used()
    time.sleep(seconds)
    return (used() - before) / seconds * 100


def _listing(home: str) -> float:
    started = time.perf_counter()
    environ = {**os.environ, "HEADWAY_HOME": home}
    subprocess.run([PROGRAM, "jobs"], env=environ, check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - started) * 1000


@contextmanager
def _worker(home: str) -> Iterator[psutil.Process]:
    environ = {**os.environ, "HEADWAY_HOME": home}
    with subprocess.Popen([PROGRAM, "worker"], env=environ, start_new_session=True) as process:
        post = Post(home)
        while (post.holder() or (0,))[0] != process.pid:
            time.sleep(0.01)
        time.sleep(0.5)
        try:
            yield psutil.Process(process.pid)
        finally:
            process.terminate()


KEEPING = Figure("keeping", "jobs kept durably, from Python", measure_keeping)
STARTING = Figure("starting", "jobs started by a worker", measure_starting)
MANY_JOBS = Figure("many", "very many jobs that wait", measure_many)
