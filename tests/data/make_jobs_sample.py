"""Makes ``jobs-format-N.db``: a board with jobs in every state, as this version writes it.

Run it once for each new format and keep what it made: later versions have to open it.
Nothing of the machine that it was made on is in there.

    python tests/data/make_jobs_sample.py
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from typing import Any

from headway import clocks, config
from headway.jobs import database
from headway.jobs.board import Board
from headway.jobs.orders import Order
from headway.jobs.states import FAILED, INTERRUPTED, SUCCEEDED, Ending

# A time of day and of the machine's clock that mean nothing.
DAY, UPTIME = 1_700_000_000.0, 5_000.0
MEANINGLESS: list[tuple[Any, str, Any]] = [
    (time, "time", lambda: DAY),
    (clocks, "boot_seconds", lambda: UPTIME),
    (clocks, "boot_microseconds", lambda: int(UPTIME * 1e6)),
    (clocks, "boot_name", lambda: "00000000-0000-0000-0000-000000000000"),
    (os, "getpid", lambda: 1),
]


def main() -> None:
    """Write the file beside this one."""
    for module, name, value in MEANINGLESS:
        setattr(module, name, value)
    name = f"jobs-format-{database.FORMAT}.db"
    made = os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
    with tempfile.TemporaryDirectory() as home:
        fill(Board(config.load(home, {"HEADWAY_JOBS_RETRY_DELAY": "0s"})))
        shutil.copyfile(os.path.join(home, "jobs.db"), made)


def fill(board: Board) -> None:
    """Jobs in every state, numbered from 1 in this order."""
    board.submit(
        [
            order("agent", "fix", task="issue-1"),
            order("agent", "two words", "new\nline", os.fsdecode(b"\xff"), retries=1),
            order("agent", keys=["agent/x", "llm/y"], weight=2),
            order("agent", expire="10s"),
            order("agent", max_runtime="1h", idle_warn="5m", notify=["json://localhost"]),
            order("agent", dedupe="only one", umask=0o077),
            order("agent", priority=5),
            order("agent", hold=True),
            order("agent", expire="never"),
            order("agent", after=[7, 8]),
            order("agent", after=[3]),
        ]
    )
    run(board, 1, Ending(SUCCEEDED, None, exit_code=0))
    run(board, 2, Ending(FAILED, "exit code 3", exit_code=3))
    bite = {"mechanism": "max_runtime", "setting": "watchdog.max_runtime", "value": "5 s"}
    run(board, 2, Ending(FAILED, "killed", exit_code=143, ended_by=bite, event="killed"))
    board.cancel(3, "not needed")
    uptime = clocks.boot_microseconds
    setattr(clocks, "boot_microseconds", lambda: int((UPTIME + 11) * 1e6))  # noqa: B010
    board.expire()
    setattr(clocks, "boot_microseconds", uptime)  # noqa: B010
    run(board, 5, Ending(INTERRUPTED, "its worker ended"))
    board.begin(6, holder="holder", lease="holder-1")
    board.cancel(6, "stop")
    board.move_first(9, before=None)
    board.archive.mark_read([1])
    board.archive.note_dropped([101, 102])
    board.database.close()


def order(*command: str, **options: Any) -> Order:
    """One that has nothing of this process."""
    plain = {"environ": {"LANG": "C"}, "directory": "/", "umask": 0o022}
    return Order(command, **{**plain, **options})


def run(board: Board, job: int, ending: Ending) -> None:
    """Start a job and end it."""
    beginning = board.begin(job, holder="holder", lease="holder-1")
    assert beginning is not None
    ending.output_bytes = 12
    board.end(job, beginning.number, ending, holder="holder")


if __name__ == "__main__":
    main()
