"""A home that is deleted, or made anew at the same path, under its worker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.worker.kit import until

if TYPE_CHECKING:
    from tests.worker.kit import House

_LEAVES_SECONDS = 20


@pytest.mark.parametrize("is_made_anew", [True, False])
def test_an_idle_worker_leaves_a_home_that_was_deleted(house: House, *, is_made_anew: bool) -> None:
    """Also if another one was made there since: it does not work in that."""
    worker = house.worker()
    house.ended(house.submit("true"))

    house.home.rename(house.directory / "old")
    if is_made_anew:
        house.home.mkdir(mode=0o700)
        assert house.run("submit", "--no-start", "--", "true").returncode == 0

    assert worker.wait(_LEAVES_SECONDS) == 0
    assert worker.stderr is not None
    assert "its home was deleted or replaced" in worker.stderr.read()
    if is_made_anew:
        assert json.loads(house.run("jobs", "--json").stdout)[0]["state"] == "queued"


@pytest.mark.parametrize("is_made_anew", [True, False])
def test_the_jobs_of_a_deleted_home_end_and_leave_those_of_the_next_alone(
    house: House, *, is_made_anew: bool
) -> None:
    """Both have the same numbers; nobody is left who could write down the end of the old ones."""
    worker = house.worker()
    house.submit("echo > started; sleep 600")
    house.file("started")
    old = set(house.processes())
    assert old

    house.home.rename(house.directory / "old")
    if is_made_anew:
        words = ["sh", "-c", "until test -e go; do sleep 0.01; done; exit 3"]
        assert house.run("submit", "--", *words).returncode == 0

    assert worker.wait(_LEAVES_SECONDS) == 0
    until(lambda: not old & set(house.processes()), "the end of the old job")
    if is_made_anew:
        (house.directory / "go").touch()
        assert house.run("wait", "1").returncode == 3
