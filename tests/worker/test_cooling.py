"""Jobs whose provider wants to be left alone: they stay in line, however long that takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.worker.kit import House, until

from headway import CoolingDown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SETTINGS = """
[cooldown]
max_wait = "1s"
[jobs]
grace = "1s"
[limits]
"llm/openai" = { slots = 2, requests_per_minute = 3 }
"""


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    """A home in which nobody waits long for a provider."""
    house = House(tmp_path, SETTINGS)
    yield house
    house.close()


def test_a_job_stays_queued_while_a_call_fails(house: House) -> None:
    """And runs when somebody ends it, or its time has come."""
    house.worker()
    house.governor.cool_down("llm/openai", 600, reason="429")
    job = house.submit("echo done > out", keys="llm/openai/gpt")
    until(lambda: house.governor.snapshot().waiting, "its ticket")
    with pytest.raises(CoolingDown), house.governor.slot("llm/openai/gpt"):
        pass
    (waiting,) = house.governor.snapshot().waiting
    assert (waiting.blocked_by.key, waiting.blocked_by.reason) == ("llm/openai", "cooling")
    assert house.state(job) == "queued"
    house.governor.resume("llm/openai")
    assert house.ended(job).state == "succeeded"


def test_one_job_goes_first_and_the_other_after_it(house: House) -> None:
    """What a job's slot is worth as an answer is known at its end."""
    house.worker()
    house.governor.cool_down("llm/openai", 1.0)
    first = house.submit("echo a > first; until test -e go; do sleep 0.01; done", keys="llm/openai")
    second = house.submit("echo b > second", keys="llm/openai")
    assert house.file("first") == "a"
    assert house.state(second) == "queued"
    (house.directory / "go").touch()
    assert house.ended(first).state == house.ended(second).state == "succeeded"


def test_a_job_spends_one_request(house: House) -> None:
    """However many hands its slot goes through."""
    house.worker()
    for _ in range(2):
        assert house.ended(house.submit("true", keys="llm/openai")).state == "succeeded"
    (limit,) = [limit for limit in house.governor.snapshot().limits if limit.key == "llm/openai"]
    assert limit.requests_lately == 2
