"""A limit on a key that looks like a misspelling of one in use gets a warning (rule 13)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from headway import Governor

if TYPE_CHECKING:
    from tests.slots.conftest import Govern

USED, MISSPELT = "llm/anthropic/claude-opus-4", "llm/antropic/claude-opus-4"


def write(home: str, *patterns: str) -> None:
    """Put limits on these into the home's file, by hand."""
    os.makedirs(home, exist_ok=True)
    with open(os.path.join(home, "config.toml"), "w", encoding="utf-8") as file:
        file.write("[limits]\n" + "".join(f'"{pattern}" = 5\n' for pattern in patterns))


def assert_warned_once(caplog: pytest.LogCaptureFixture) -> None:
    """Fail if there is not just the one warning with the near match."""
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert repr(MISSPELT) in record.message
    assert record.message.endswith(f"in use: {USED}")


def test_a_misspelt_key_is_warned_of(govern: Govern, caplog: pytest.LogCaptureFixture) -> None:
    """A limit on a key that nobody uses, next to one in use, names the near ones."""
    governor = govern()

    with governor.slot("llm/anthropic/claude-opus-4"):
        governor.set_limit("llm/anthropic/claude-opus-4", 2)
        governor.set_limit("llm/*", 9)
        governor.set_limit("something/else", 9)
        assert caplog.records == []
        governor.set_limit("llm/antropic/claude-opus-4", 2)

    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "llm/antropic/claude-opus-4" in record.message
    assert "llm/anthropic/claude-opus-4" in record.message


@pytest.fixture
def governor(home: str) -> Governor:
    """A governor of the home in which the key is in use."""
    return Governor(f"sqlite:///{home}")


def test_opening_a_home_warns_of_new_lines_in_its_file(
    home: str, governor: Governor, caplog: pytest.LogCaptureFixture
) -> None:
    """Once for each change of the file: who opens it next is not told again."""
    with governor, governor.slot(USED):
        write(home, "llm/*", MISSPELT, "something/else")
        Governor(f"sqlite:///{home}").close()
        assert_warned_once(caplog)
        Governor(f"sqlite:///{home}").close()

    assert_warned_once(caplog)


def test_reloading_warns_of_all_lines(
    home: str, governor: Governor, caplog: pytest.LogCaptureFixture
) -> None:
    """Also of those that were there before their neighbour was in use."""
    write(home, MISSPELT)
    Governor(f"sqlite:///{home}").close()
    assert "did you mean" in caplog.records[0].message
    caplog.clear()

    with governor, governor.slot(USED):
        assert caplog.records == []
        governor.reload()
        governor.reload()

    assert_warned_once(caplog)


def test_limits_in_code_are_warned_of(
    home: str, governor: Governor, caplog: pytest.LogCaptureFixture
) -> None:
    """And those in the environment, which are offered in the same way."""
    with governor, governor.slot(USED):
        Governor(f"sqlite:///{home}", limits={"llm": 9, MISSPELT: 5}).close()

    assert_warned_once(caplog)


def test_two_names_that_both_have_a_line_are_not_mistaken_for_each_other(
    home: str, governor: Governor, caplog: pytest.LogCaptureFixture
) -> None:
    """Models are often named alike, and not all of them are in use all the time."""
    with governor, governor.slot("llm/claude-opus-4"):
        write(home, "llm/claude-opus-4", "llm/claude-opus-4-1")
        governor.reload()

    assert caplog.records == []


def test_limits_that_did_not_change_are_not_looked_at(
    home: str, governor: Governor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening a home reads no more than it has to."""
    write(home, MISSPELT)
    with governor, governor.slot(USED):
        Governor(f"sqlite:///{home}").close()

        def look(*_: object) -> None:
            raise AssertionError("nothing changed")

        monkeypatch.setattr("headway.stores.reader.Reader.census", look)
        Governor(f"sqlite:///{home}").close()
