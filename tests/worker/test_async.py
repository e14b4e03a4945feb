"""Jobs from coroutines."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from headway import QueueTimeout

if TYPE_CHECKING:
    from tests.worker.kit import House


def test_coroutines_submit_and_wait_side_by_side(house: House) -> None:
    """Many waits take no thread each, and the loop goes on meanwhile."""
    house.worker()

    async def one(number: int) -> int | None:
        kept = await house.jobs.asubmit(
            ["sh", "-c", f"exit {number}"], keys="agent/test", start=False
        )
        return (await house.jobs.await_for(kept.id, timeout=60)).exit_code

    async def all_of_them() -> list[int | None]:
        return await asyncio.gather(*(one(number) for number in range(12)))

    assert asyncio.run(all_of_them()) == list(range(12))


def test_a_wait_ends_in_time_and_can_be_cancelled(house: House) -> None:
    """And leaves no bell behind."""
    job = house.submit("true", hold=True)

    async def give_up() -> None:
        with pytest.raises(QueueTimeout):
            await house.jobs.await_for(job, timeout="20ms")
        waiting = asyncio.create_task(house.jobs.await_for(job))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(give_up())
    assert not list((house.home / "bells").iterdir())
    assert house.state(job) == "held"


def test_the_other_doors_are_there_too(house: House) -> None:
    """Each does what its plain twin does."""

    async def walk() -> None:
        held = (await house.jobs.asubmit(["true"], hold=True, start=False)).id
        assert (await house.jobs.aget(held)).state == "held"
        await house.jobs.acancel(held, "why not")
        assert [job.end_reason for job in await house.jobs.aall()] == ["why not"]

    asyncio.run(walk())
