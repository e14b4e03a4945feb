from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headway import ConfigError, limits
from headway.limits import UNCAPPED, UNLIMITED, Line, Terms, parse_lines, shown, slots

segments = st.sampled_from(["a", "b", "*"])
patterns = st.lists(segments, min_size=1, max_size=3).map("/".join)
some_keys = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3).map("/".join)
lines = st.dictionaries(patterns, st.integers(1, 9), max_size=8).map(
    lambda table: [Line(pattern, number, "file") for pattern, number in table.items()]
)


def oracle(written: list[Line], key: str) -> Line | None:
    """Try all patterns of the key: an exact segment before a star, the leftmost deciding."""
    by_pattern = {line.pattern: line for line in written}
    for choice in itertools.product((True, False), repeat=len(key.split("/"))):
        pattern = "/".join(
            segment if exact else "*" for segment, exact in zip(key.split("/"), choice, strict=True)
        )
        if pattern in by_pattern:
            return by_pattern[pattern]
    return None


@given(lines, some_keys)
@example([Line("a/*", 1, "file"), Line("*/b", 2, "file")], "a/b")
def test_the_most_specific_line_wins(written: list[Line], key: str) -> None:
    """As a brute-force search over all patterns says."""
    assert Terms(written).line_for(key).slots == getattr(oracle(written, key), "slots", UNCAPPED)


def test_agent_has_a_default_that_any_line_replaces() -> None:
    """Also a pattern does; and no other key has one."""
    assert (Terms().line_for("agent").slots, Terms().line_for("agent").source) == (3, "default")
    assert Terms([Line("*", 8, "file")]).line_for("agent").slots == 8
    assert Terms([Line("agent", 1, "code")]).line_for("agent").source == "code"
    assert Terms().line_for("agent/x").slots == UNCAPPED
    assert Terms().line_for("llm").slots == UNCAPPED


class CountedLines(dict[str, Line]):
    """Lines by their patterns that count how many of them were looked at."""

    looks = 0

    def get(self, *wanted: Any) -> Any:
        self.looks += 1
        return super().get(*wanted)

    def values(self) -> Any:
        self.looks += len(self)
        return super().values()


@pytest.mark.parametrize("many", [10, 1000])
def test_a_key_costs_one_lookup_and_one_for_each_shape_of_pattern(many: int) -> None:
    """However many lines there are: with 1,000 limits and 3,000 keys a status took 8 seconds."""
    patterns = [*(f"team{n}/x" for n in range(many)), "*/x", "llm/*", "*", "a/*/c"]
    terms = Terms([Line(pattern, 2, "file") for pattern in patterns])
    terms._by_pattern = counted = CountedLines(terms._by_pattern)
    assert terms.cap("llm/a") == 2
    counted.looks = 0

    for n in range(50):
        assert terms.cap(f"other/{n}") == UNCAPPED
        assert terms.budget(f"other/{n}") == UNCAPPED

    assert counted.looks == 50 * 2 * 3  # the key itself, */x and llm/*


@given(lines, lines)
def test_offered_lines_fill_gaps_and_change_nothing(
    present: list[Line], offered: list[Line]
) -> None:
    """What a store has stands; what differs is reported; what it lacks is added."""
    before = Terms(present)
    after, met = before.with_offered(offered)

    for line in present:
        assert after.exact(line.pattern) == line
    for line in offered:
        kept = after.exact(line.pattern)
        assert kept is not None
        assert (kept.slots != line.slots) == any(one == line for one, _ in met)
    assert {line.pattern for line in after.lines} == {line.pattern for line in (*present, *offered)}


@given(lines, lines)
def test_a_file_read_anew_replaces_its_own_lines_only(old: list[Line], new: list[Line]) -> None:
    """Lines from code stay where the file is silent; lines that left the file are gone."""
    offered = [Line("code/only", 7, "code")]
    terms = Terms([*offered, *old], ["paused"]).with_file(new, ["other"])

    assert {line.pattern for line in terms.lines} == {"code/only"} | {line.pattern for line in new}
    assert terms.paused == {"other"}


def test_terms_are_values() -> None:
    """Equal when they say the same, whatever the order; changing one makes another."""
    one, other = Line("a", 1, "file"), Line("b", 2, "code")
    terms = Terms([one, other], ["x"])

    assert terms == Terms([other, one], ["x"])
    assert hash(terms) == hash(Terms([other, one], ["x"]))
    assert terms != Terms([one], ["x"])
    assert terms != Terms([one, other])
    assert terms.without("a") == Terms([other], ["x"])
    assert terms.with_paused(["y"]) == Terms([one, other], ["y"])
    assert terms.with_lines([Line("a", 5, "code")]).line_for("a").slots == 5
    assert terms.lines == [one, other]
    assert repr(Line("a", UNCAPPED, "file")) == "Line('a', 'unlimited', 'file')"


@pytest.mark.parametrize("good", [1, 2, 10**9, "unlimited"])
def test_a_limit_is_a_number_of_slots_or_unlimited(good: int | str) -> None:
    """And is shown as it was written."""
    assert shown(slots(good, where="x")) == good


@pytest.mark.parametrize("bad", ["2", 0, -1, 1.5, True, None, "", "Unlimited", 1.0])
def test_everything_else_is_refused_by_name(bad: object) -> None:
    """With the place, the value and the way to write it."""
    with pytest.raises(ConfigError) as caught:
        slots(bad, where="config.toml: agent")

    for named in ("config.toml: agent", repr(bad), "whole number", UNLIMITED):
        assert named in str(caught.value)


def test_all_bad_lines_are_reported_together() -> None:
    """One by one would be one start after the other."""
    with pytest.raises(ConfigError) as caught:
        parse_lines({"a": 0, "b": 2, "c//d": 1, "e": "x"}, source="file", where="here")

    assert len(caught.value.problems) == 3
    assert all(problem.startswith("here") for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        (4, {"slots": 4}),
        ({"slots": 4}, {"slots": 4}),
        ({"requests_per_minute": 60}, {"requests_per_minute": 60}),
        (
            {"slots": "unlimited", "requests_per_minute": 1},
            {"slots": "unlimited", "requests_per_minute": 1},
        ),
    ],
)
def test_a_limit_may_be_a_table_of_parts(value: Any, parts: dict[str, object]) -> None:
    """Each of them optional."""
    assert limits.line("llm/a", value, source="file", where="x").parts() == parts


@pytest.mark.parametrize(
    ("pattern", "value", "problem"),
    [
        ("llm/a", {}, "says nothing"),
        ("llm/a", {"slot": 4}, "'slot' is not a part of a limit; known are slots and"),
        ("llm/a", {"slots": 0}, "slots = 0 is not a limit"),
        ("llm/a", {"requests_per_minute": 1.5}, "requests_per_minute = 1.5 is not a budget"),
        ("llm/a", {"requests_per_minute": True}, "requests_per_minute = True is not a budget"),
        ("agent", {"requests_per_minute": 5}, "for keys of LLM requests"),
        ("*/a", {"requests_per_minute": 5}, "for keys of LLM requests"),
        ("llm/a", {3: 4}, "3 is not a part"),
    ],
)
def test_a_bad_table_is_refused_by_name(pattern: str, value: Any, problem: str) -> None:
    """With what could stand there."""
    with pytest.raises(ConfigError) as caught:
        limits.line(pattern, value, source="file", where="here")
    assert problem in str(caught.value)
    assert str(caught.value).startswith("here")


def test_all_bad_parts_are_reported_together() -> None:
    """One run of an editor mends them all."""
    with pytest.raises(ConfigError) as caught:
        limits.line("llm", {"slots": 0, "requests_per_minute": -1}, source="file", where="x")
    assert len(caught.value.problems) == 2


def test_an_offered_budget_that_meets_another_is_told() -> None:
    """As for slots."""
    present = limits.line("llm", {"slots": 4, "requests_per_minute": 1}, source="file", where="")
    offered = limits.line("llm", {"slots": 4, "requests_per_minute": 2}, source="code", where="")
    terms, met = limits.Terms([present]).with_offered([offered])
    assert terms.budget("llm") == 1
    assert met == [(offered, present)]
