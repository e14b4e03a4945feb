"""A lease lent to child processes through their environment."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.slots.support import assert_clean, holding_tasks

import headway
from headway import Governor

if TYPE_CHECKING:
    import pytest

_SOURCE = os.path.dirname(os.path.dirname(headway.__file__))
_ASK = """
import headway
with headway.slot({keys}, wait={wait}) as lease:
    print(lease.task, headway.governor.default().capacity("k").used)
"""


def child(environ: dict[str, str], *, keys: str = '"k"', wait: bool = True) -> str:
    """What a child process with this environment says about the slot it got."""
    run = subprocess.run(
        [sys.executable, "-c", _ASK.format(keys=keys, wait=wait)],
        env={**os.environ, "PYTHONPATH": _SOURCE, **environ},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return run.stdout.strip() or run.stderr.strip().splitlines()[-1]


def test_a_parent_process_that_waits_for_its_child_finishes(home: str) -> None:
    """At a limit of one, the child asks for the same key and goes ahead on its parent's slot."""
    with Governor(f"sqlite:///{home}", limits={"k": 1}) as governor:
        with governor.slot("k", task="t") as lease:
            assert child(lease.environ()) == "t 1"
            assert child(lease.environ(), keys='"k/deeper"') == "t 1"
            assert holding_tasks(governor) == ["t"]
        assert_clean(governor)


def test_a_child_process_finds_the_home_by_itself(
    home: str, tmp_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``environ()`` names the home, wherever the child would have looked."""
    monkeypatch.setenv("HEADWAY_HOME", f"{tmp_path}/elsewhere")

    with Governor(f"sqlite:///{home}", limits={"k": 1}) as governor, governor.slot("k") as lease:
        assert child(lease.environ()) == "None 1"

    assert not os.path.exists(f"{tmp_path}/elsewhere")


def test_without_the_lease_a_child_process_is_anyone(home: str) -> None:
    """A child that did not inherit the lease finds the key full."""
    with Governor(f"sqlite:///{home}", limits={"k": 1}) as governor, governor.slot("k") as lease:
        environ = {**lease.environ(), "HEADWAY_LEASE": ""}
        assert "AtCapacity" in child(environ, wait=False)


def test_a_stale_lease_in_the_environment_is_ignored(home: str) -> None:
    """Whoever inherited the name of a lease that is gone asks as everyone does."""
    with Governor(f"sqlite:///{home}", limits={"k": 1}) as governor:
        with governor.slot("k") as lease:
            environ = lease.environ()

        assert child(environ) == "None 1"
        assert child({**environ, "HEADWAY_LEASE": "nobody-1"}) == "None 1"
        assert child({**environ, "HEADWAY_LEASE": "nonsense\n'"}) == "None 1"
        with governor.slot("k"):
            assert "AtCapacity" in child(environ, wait=False)
        assert_clean(governor)


def test_an_explicit_parent_goes_before_the_environment(
    home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``parent=`` in code says more than the variable."""
    with Governor(f"sqlite:///{home}", limits={"k": 2}) as outer, outer.slot("k") as lease:
        monkeypatch.setenv("HEADWAY_LEASE", lease.id)
        with Governor(f"sqlite:///{home}") as governor, governor.slot("k") as borrowing:
            assert governor.capacity("k").used == 1
            with governor.slot("k", parent=borrowing):
                assert governor.capacity("k").used == 1
            with governor.slot("k", parent="nobody-1"):
                assert governor.capacity("k").used == 2


def test_a_child_that_outlives_the_block_it_was_started_in_uses_the_slot_round_that(
    home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease in the middle has ended; the next one outwards still runs, and lends."""
    with Governor(f"sqlite:///{home}", limits={"k": 1}) as outer, outer.slot("k") as lease:
        monkeypatch.setenv("HEADWAY_LEASE", lease.environ()["HEADWAY_LEASE"])
        with Governor(f"sqlite:///{home}") as governor:
            with governor.slot("k") as middle:
                environ = middle.environ()
            assert child(environ, wait=False) == "None 1"
            assert environ["HEADWAY_LEASE"] == f"{middle.id} {lease.id}"


def test_a_parent_in_code_passes_on_what_it_stands_inside_of(
    home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``parent=`` a lease means all that are round it, also once that lease has ended."""
    with Governor(f"sqlite:///{home}", limits={"k": 1}) as governor, governor.slot("k") as outer:
        middle = governor.slot("k", parent=outer)
        with middle as between, governor.slot("k", parent=between) as inner:
            environ = inner.environ()
        assert environ["HEADWAY_LEASE"] == f"{inner.id} {between.id} {outer.id}"
        monkeypatch.setenv("HEADWAY_LEASE", environ["HEADWAY_LEASE"])
        with Governor(f"sqlite:///{home}") as elsewhere, elsewhere.slot("k", wait=False) as last:
            assert last.environ()["HEADWAY_LEASE"].startswith(f"{last.id} {outer.id} ")


def test_a_lease_of_another_home_in_between_hides_nothing(
    home: str, tmp_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a home to another and back to the first: its own lease there is found again."""
    with Governor(f"sqlite:///{home}", limits={"k": 1}) as first, first.slot("k") as outer:
        monkeypatch.setenv("HEADWAY_LEASE", outer.environ()["HEADWAY_LEASE"])
        with Governor(f"sqlite:///{tmp_path}/other") as other, other.slot("k") as middle:
            assert child({**middle.environ(), "HEADWAY_HOME": home}, wait=False) == "None 1"


def test_a_lease_in_memory_in_between_hides_nothing(
    home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has nothing to lend to other processes, and passes on what it stands inside of."""
    with Governor(f"sqlite:///{home}", limits={"k": 1}) as first, first.slot("k") as outer:
        monkeypatch.setenv("HEADWAY_LEASE", outer.environ()["HEADWAY_LEASE"])
        with Governor("memory://") as other, other.slot("k") as middle:
            assert child({**middle.environ(), "HEADWAY_HOME": home}, wait=False) == "None 1"


def test_what_is_passed_on_is_bounded(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many leases of elsewhere stand in the environment; those that run go first."""
    with Governor(f"sqlite:///{home}", limits={"k": 1}) as outer, outer.slot("k") as lease:
        strangers = [f"nobody-{number}" for number in range(20)]
        monkeypatch.setenv("HEADWAY_LEASE", " ".join([*strangers, lease.id, *strangers * 50]))
        with Governor(f"sqlite:///{home}") as governor, governor.slot("k", wait=False) as inner:
            chain = inner.environ()["HEADWAY_LEASE"].split()
    assert chain == [inner.id, lease.id, *strangers]


def test_a_memory_governor_has_no_parent_in_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lease of a home means nothing to it, the task does."""
    monkeypatch.setenv("HEADWAY_LEASE", "abc-1")
    monkeypatch.setenv("HEADWAY_TASK", "inherited")

    with Governor("memory://") as governor, governor.slot("k") as lease:
        assert lease.task == "inherited"
