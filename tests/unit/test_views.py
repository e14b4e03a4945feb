from __future__ import annotations

import pytest

from headway import keys, views
from headway.limits import UNCAPPED, Line, Terms
from headway.stores.base import Census, Holder
from headway.stores.book import KeyState
from headway.tickets import Ticket
from headway.views import BlockedBy


def state(
    key: str, cap: int = UNCAPPED, *, used: int = 0, reserved: int = 0, waiting: int = 0
) -> KeyState:
    """One key as a store would show it."""
    made = KeyState(key, cap)
    made.used, made.reserved, made.waiting = used, reserved, waiting
    return made


def ticket(name: str, *named: str, at: str | None = None, within: tuple[str, ...] = ()) -> Ticket:
    """A ticket that waits at a key, or a lease."""
    made = Ticket(f"holder-{name}", named, keys.path(named), task=name, within=within)
    made.at = at
    return made


def census(
    *,
    states: list[KeyState],
    leases: list[Ticket] | None = None,
    waiting: list[Ticket] | None = None,
    loans: list[tuple[str, str, str]] | None = None,
    terms: Terms | None = None,
) -> Census:
    """One look at a store."""
    return Census(
        terms=terms or Terms(),
        states=states,
        leases=leases or [],
        waiting=waiting or [],
        loans=loans or [],
        holders=[Holder("holder", 42, "host", "command")],
    )


def test_capacity_of_an_unlimited_key() -> None:
    """Shown with the word, not a number."""
    seen = views.capacity("k", [state("k", used=5)])

    assert (seen.limit, seen.used, seen.free, seen.pressure) == ("unlimited", 5, "unlimited", "ok")


def test_what_is_reserved_is_not_free() -> None:
    """And a key over its lowered limit has nothing free, not less."""
    assert views.capacity("k", [state("k", 3, used=1, reserved=1)]).free == 1
    assert views.capacity("k", [state("k", 1, used=3)]).free == 0


def test_a_free_slot_that_somebody_waits_for_is_not_free() -> None:
    """Whoever asks now stands behind them."""
    seen = views.capacity("k", [state("k", 3, used=1, waiting=1)])

    assert (seen.free, seen.waiting, seen.blocked_by) == (0, 1, BlockedBy("k", "full"))


def test_the_first_key_in_collection_order_that_blocks_is_named() -> None:
    """That is where a ticket would stand."""
    seen = views.capacity("a/b", [state("a/b", 1, used=1), state("a", 1, used=1)])

    assert seen.blocked_by == BlockedBy("a/b", "full")


def test_a_pause_has_no_estimate() -> None:
    """Nobody knows when a person resumes."""
    paused = state("k", 1)
    paused.paused, paused.hold_seconds = True, 5.0

    seen = views.capacity("k", [paused])

    assert (seen.blocked_by, seen.estimated_wait_seconds) == (BlockedBy("k", "paused"), None)


def test_a_snapshot_shows_keys_in_use_and_keys_with_a_line() -> None:
    """In order; patterns are no keys; leases without a known holder are shown all the same."""
    lease = ticket("a", "x/y")
    stranger = Ticket("gone-1", ("x",), ("x",))
    seen = views.snapshot(
        census(
            terms=Terms([Line("z", 2, "file"), Line("llm/*", 3, "file")], ["z"]),
            states=[state("x", used=2), state("x/y", used=1)],
            leases=[lease, stranger],
        )
    )

    assert [(row.key, row.limit, row.source) for row in seen.limits] == [
        ("agent", 3, "default"),
        ("x", "unlimited", "none"),
        ("x/y", "unlimited", "none"),
        ("z", 2, "file"),
    ]
    assert [row.paused for row in seen.limits] == [False, False, False, True]
    holders = {row.id: row.holder.pid for row in seen.leases}
    assert holders == {"holder-a": 42, "gone-1": 0}


def reasons(look: Census) -> dict[str | None, str]:
    """Why each waiting task waits."""
    return {row.task: row.blocked_by.reason for row in views.snapshot(look).waiting}


def test_a_circle_of_three_is_a_possible_deadlock() -> None:
    """Each waits inside a lease for a key that only the next one holds; a bystander too."""
    leases = [ticket(name, name) for name in "abc"]
    waiting = [
        ticket("wa", "b", at="b", within=("holder-a",)),
        ticket("wb", "c", at="c", within=("holder-b",)),
        ticket("wc", "a", at="a", within=("holder-c",)),
        ticket("by", "a", at="a"),
    ]
    full = [state(name, 1, used=1, waiting=1) for name in "abc"]

    assert reasons(census(states=full, leases=leases, waiting=waiting)) == {
        "wa": "possible_deadlock",
        "wb": "possible_deadlock",
        "wc": "possible_deadlock",
        "by": "full",
    }


@pytest.mark.parametrize("way_out", ["another holder", "a paused key"])
def test_a_circle_with_a_way_out_is_none(way_out: str) -> None:
    """One lease that runs on, or a key that a person will open, is enough."""
    leases = [ticket(name, name) for name in "ab"]
    waiting = [
        ticket("wa", "b", at="b", within=("holder-a",)),
        ticket("wb", "a", at="a", within=("holder-b",)),
    ]
    full = [state(name, 2, used=2, waiting=1) for name in "ab"]
    if way_out == "another holder":
        leases.append(ticket("free", "a"))
    else:
        full[0].paused = True

    assert (
        "possible_deadlock"
        not in reasons(census(states=full, leases=leases, waiting=waiting)).values()
    )


def test_a_borrowed_slot_makes_no_room_by_itself() -> None:
    """Only the lender's end frees the key; its borrower's does not."""
    parent, child = ticket("parent", "a"), ticket("child", "a")
    waiting = [ticket("w", "a", at="a", within=("holder-parent",))]
    look = census(
        states=[state("a", 1, used=1, waiting=1)],
        leases=[parent, child],
        waiting=waiting,
        loans=[("holder-parent", "a", "holder-child")],
    )

    assert reasons(look) == {"w": "possible_deadlock"}


def test_positions_count_along_the_key_where_each_stands() -> None:
    """First in line first, each line for itself."""
    waiting = [ticket("1", "a", at="a"), ticket("2", "b", at="b"), ticket("3", "a", at="a")]
    look = census(states=[state("a", 1, waiting=2), state("b", 1, waiting=1)], waiting=waiting)

    assert [(row.task, row.position) for row in views.snapshot(look).waiting] == [
        ("1", 1),
        ("2", 1),
        ("3", 2),
    ]
