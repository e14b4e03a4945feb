"""Waits that may never end are shown and warned of, once and with the way out."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.slots.support import Held, Worker, assert_clean, auntil, until, waiting_tasks

from headway import Governor

if TYPE_CHECKING:
    from pathlib import Path

    from tests.slots.conftest import Govern

WARNING = "possible deadlock"


def reasons(governor: Governor) -> list[str]:
    """Why those wait who do."""
    return [row.blocked_by.reason for row in governor.snapshot().waiting]


def test_a_task_that_waits_for_its_starter_is_shown_and_warned_of_once(
    govern: Govern, caplog: pytest.LogCaptureFixture
) -> None:
    """It inherited the context of a task that holds the slot, and perhaps awaits it there."""
    governor = govern({"k": 1})

    async def work() -> None:
        async with governor.slot("k", task="inner"):
            pass

    async def main() -> None:
        async with governor.slot("k", task="outer"):
            children = [asyncio.create_task(work()) for _ in range(3)]
            await auntil(lambda: len(waiting_tasks(governor)) == 3)
            assert reasons(governor) == ["possible_deadlock"] * 3
            assert {row.estimated_wait_seconds for row in governor.snapshot().waiting} == {None}
            await auntil(lambda: WARNING in caplog.text)
        await asyncio.wait_for(asyncio.gather(*children), 10)

    asyncio.run(main())
    (record,) = [record for record in caplog.records if WARNING in record.getMessage()]
    assert record.levelname == "WARNING"
    assert "outer (pid" in record.getMessage()
    assert 'parent="current"' in record.getMessage()
    assert_clean(governor)


def test_a_wait_that_others_will_end_is_not_warned_of(
    govern: Govern, caplog: pytest.LogCaptureFixture
) -> None:
    """From inside a slot, for a key that somebody holds who runs."""
    governor = govern({"a": 1, "b": 1})

    def nested() -> str:
        with governor.slot("a"), governor.slot("b"):
            return "done"

    with Held(governor, "b"):
        worker = Worker(nested)
        worries = governor._turnstile._worries
        until(lambda: worries._fresh)
        until(lambda: not worries._fresh)
        assert reasons(governor) == ["full"]
    assert worker.result() == "done"
    assert WARNING not in caplog.text


CHILD = """
import sys, headway
with headway.Governor("sqlite:///" + sys.argv[1]).slot("k", task="child", timeout=15):
    print("done")
"""


def test_a_child_process_that_wants_its_parents_slot_is_shown_and_warns(home: str) -> None:
    """It was started without ``lease.environ()``, so nothing but its ancestry tells."""
    governor = Governor(f"sqlite:///{home}", limits={"k": 1})
    with governor.slot("k", task="parent"):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, home],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            until(lambda: reasons(governor) == ["possible_deadlock"])
            assert child.stderr is not None
            told = child.stderr.readline()
        except BaseException:
            child.kill()
            raise
    out, more = child.communicate(timeout=15)
    assert out == "done\n"
    assert WARNING in told
    assert "parent (pid" in told
    assert "lease.environ()" in told
    assert WARNING not in more
    assert_clean(governor)


# A program of its own: a helper process of multiprocessing stays a child of whoever uses it.
BORROWING = """
import multiprocessing, sys
from headway import Governor

def borrow(home, lease, answers):
    with Governor(f"sqlite:///{home}").slot("k", parent=lease):
        answers.put("done")

if __name__ == "__main__":
    home, method = sys.argv[1:]
    context = multiprocessing.get_context(method)
    with Governor(f"sqlite:///{home}", limits={"k": 1}).slot("k") as lease:
        answers = context.Queue()
        child = context.Process(target=borrow, args=(home, lease.id, answers))
        child.start()
        print(answers.get())
        child.join()
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_of_multiprocessing_runs_on_the_slot_that_it_is_told(
    home: str, tmp_path: Path, method: str
) -> None:
    """It does not borrow by itself; the id of the lease lets it."""
    program = tmp_path / "borrowing.py"
    program.write_text(BORROWING)

    done = subprocess.run(
        [sys.executable, program, home, method],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.stdout == "done\n", done.stderr
