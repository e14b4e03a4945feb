from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway import ConfigError
from headway.durations import seconds

UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (90, 90),
        (1.5, 1.5),
        (0, 0),
        ("0s", 0),
        ("250ms", 0.25),
        ("30s", 30),
        ("10m", 600),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("2d", 172800),
        ("3650d", 3650 * 86400),
        (".5s", 0.5),
    ],
)
def test_durations_as_people_write_them(written: object, meant: float) -> None:
    """Seconds as a number, or numbers with units."""
    assert seconds(written, name="timeout") == pytest.approx(meant)


@pytest.mark.parametrize(
    "bad",
    [
        *("", "s", "10", "10 m", "m10", "1h30", "10x", "-1s", "1.2.3s", "1e3s", "ten", "1,5s"),
        *(-1, -0.001, float("nan"), float("inf"), True, False, None, [], b"1s", 10**400),
        *("3651d", "9" * 400 + "s", 3651 * 86400, "\u0661s", "\n1s", "1s\n", "1S", "1min"),
    ],
    ids=lambda bad: repr(bad)[:12],
)
def test_what_is_unclear_is_refused_by_name(bad: object) -> None:
    """Naming the argument and how to write it."""
    with pytest.raises(ConfigError, match=r"timeout must be a duration.*10m"):
        seconds(bad, name="timeout")


@given(
    st.lists(st.tuples(st.integers(0, 500), st.sampled_from(sorted(UNITS))), min_size=1, max_size=4)
)
def test_parts_add_up(parts: list[tuple[int, str]]) -> None:
    """In any order and number."""
    written = "".join(f"{number}{unit}" for number, unit in parts)

    assert seconds(written, name="x") == pytest.approx(
        sum(number * UNITS[unit] for number, unit in parts)
    )


@given(st.floats(0, 3650 * 86400))
def test_numbers_are_seconds(number: float) -> None:
    """Just as they are."""
    assert seconds(number, name="x") == number


@given(st.text(max_size=12) | st.text("0123456789.smhd ", max_size=8))
def test_no_text_is_anything_but_a_duration_or_an_error(text: str) -> None:
    """Nothing else ever comes out."""
    try:
        assert 0 <= seconds(text, name="x") <= 3650 * 86400
    except ConfigError:
        pass


def test_none_is_no_duration() -> None:
    """Whether there may be no bound is for the caller to say."""
    with pytest.raises(ConfigError):
        seconds(None, name="x")
