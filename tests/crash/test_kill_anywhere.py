"""``kill -9`` between any two lines of every operation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.crash.scenarios import SCENARIOS

if TYPE_CHECKING:
    from tests.crash.kit import Crew


def _play(crew: Crew, scenario: str, most: int | None) -> None:
    driver = crew.start(
        f"""
        from tests.crash.faults import drive
        try:
            say("done", drive({scenario!r}, {most}, say))
        except AssertionError as error:
            say("failed", str(error).replace(chr(10), " "))
        """
    )
    # A line for each death, so that only a hang takes long.
    while (line := driver.line()).startswith("died") or line.isdecimal():
        pass
    assert line.startswith("done"), line
    assert not line.startswith("done 0 deaths")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_death_at_some_lines_of_an_operation(crew: Crew, scenario: str) -> None:
    """Wherever an operation is cut off by SIGKILL, capacity and order come back in full."""
    _play(crew, scenario, 14)


@pytest.mark.soak
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_death_at_every_line_of_an_operation(crew: Crew, scenario: str) -> None:
    """There is no line of any operation at which a SIGKILL costs capacity or order."""
    _play(crew, scenario, None)
