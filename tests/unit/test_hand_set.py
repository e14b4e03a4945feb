"""Limits that people set: of each the latest change stands, whoever tells of it and when."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headway.limits import FILE, STORE, Line, Terms
from headway.stores.hand_set import HandSet

lines = st.builds(Line, st.sampled_from(["a", "b/*", "c"]), st.integers(1, 9), st.just(STORE))
terms = st.builds(
    Terms, st.lists(lines, max_size=3), st.lists(st.sampled_from(["a", "b"]), max_size=2)
)


def _history(changes: list[Terms]) -> list[HandSet]:
    """What was known after each change."""
    known, before = [HandSet({})], Terms()
    for version, after in enumerate(changes, start=1):
        known.append(known[-1].changed(before, after, version=version))
        before = after
    return known


@given(st.lists(terms, min_size=1, max_size=6), st.randoms())
def test_the_latest_is_known_in_whatever_order_it_is_told(
    changes: list[Terms], random: object
) -> None:
    """Those who know less add nothing and take nothing away."""
    known = _history(changes)
    told = list(known)
    random.shuffle(told)  # type: ignore[attr-defined]

    merged = HandSet({})
    for each in told:
        merged = merged.merged(each)

    assert merged == known[-1]
    assert merged.terms(Terms()) == changes[-1]


@given(st.lists(terms, max_size=6))
def test_it_can_be_written_down(changes: list[Terms]) -> None:
    """Terms and versions together have all of it, also what was taken away."""
    known = _history(changes)[-1]

    assert HandSet.of(known.terms(Terms()), known.versions) == known


def test_what_was_taken_away_is_not_brought_back() -> None:
    """A process that knows only the limit, and not its end, does not restore it."""
    limited = Terms([Line("a", 1, STORE)])
    _, old, new = _history([limited, Terms()])

    assert new.merged(old).terms(Terms()) == Terms()


def test_offered_lines_stay_where_nobody_set_one() -> None:
    """Lines from files and code are not of people's making here, and have no version."""
    offered = Terms([Line("a", 5, FILE), Line("b", 6, FILE)])
    known = HandSet({}).changed(Terms(), Terms([Line("a", 1, STORE)]), version=1)

    assert known.terms(offered) == Terms([Line("a", 1, STORE), Line("b", 6, FILE)])
    assert known.changed(offered, Terms(), version=2) == known


def test_only_so_many_that_were_taken_away_are_remembered() -> None:
    """Setting and unsetting new keys for ever does not fill the server."""
    known = HandSet({})
    for version in range(1, 1203):
        limited = Terms([Line(f"k{version}", 1, STORE)])
        known = known.changed(Terms(), limited, version=2 * version)
        known = known.changed(limited, Terms(), version=2 * version + 1)

    assert len(known.versions) == 1000
    assert "limit k1202" in known.versions
