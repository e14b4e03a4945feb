"""What is no limit is refused on every way in (rule 13), and names from outside are escaped."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

import headway
from headway import ConfigError, Governor

if TYPE_CHECKING:
    from tests.slots.conftest import Govern

BAD: list[Any] = ["2", 0, -1, 1.5, float("nan"), float("inf"), True, False, None, "", "Unlimited"]
BAD += [" unlimited", "3 ", 10**12, 10**5000, [], {}, 2.0]


def name_of(value: object) -> str:
    """A short name for a bad value."""
    return "huge" if value == 10**5000 else repr(value)


@pytest.mark.parametrize("value", BAD, ids=name_of)
def test_the_constructor_refuses_it(url: str, value: Any) -> None:
    """Before any store is opened, naming key and value."""
    with pytest.raises(ConfigError) as caught:
        Governor(url, limits={"agent": value})

    assert '"agent"' in str(caught.value)


@pytest.mark.parametrize("value", BAD, ids=name_of)
def test_set_limit_refuses_it(govern: Govern, value: Any, home: str) -> None:
    """The limit in force stays, and nothing is written."""
    governor = govern({"agent": 2})

    with pytest.raises(ConfigError, match="agent"):
        governor.set_limit("agent", value)

    assert governor.capacity("agent").limit == 2
    assert not os.path.exists(os.path.join(home, "config.toml"))


@pytest.mark.parametrize("table", [[("agent", 2)], ["agent"], "agent=2", 3, {"agent"}, [], 0, ""])
def test_what_is_no_table_of_limits_is_refused(url: str, table: Any) -> None:
    """With an example of one."""
    with pytest.raises(ConfigError, match="limits must be keys with their slots"):
        Governor(url, limits=table)


@pytest.mark.parametrize("value", [0, "2", 10**9 + 1, 10**5000], ids=name_of)
def test_a_refusal_names_the_largest_limit(value: Any) -> None:
    """So that nobody has to find it out by trial."""
    with pytest.raises(ConfigError, match="from 1 to 1000000000") as caught:
        Governor("memory://", limits={"agent": value})

    if value != 10**5000:
        assert f"= {value!r} is" in str(caught.value)


def toml(value: Any) -> str:
    """The value as a person could write it."""
    if isinstance(value, float):
        return f"{value}"
    if value == 10**5000:
        return "1" + "0" * 5000
    return "{}" if value == {} else json.dumps(value)


@pytest.mark.parametrize("value", [value for value in BAD if value is not None], ids=name_of)
def test_the_file_refuses_it(home: str, value: Any) -> None:
    """Opening the home names file, key and value, and says how to write it."""
    os.makedirs(home)
    path = os.path.join(home, "config.toml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'[limits]\n"agent" = {toml(value)}\n')

    with pytest.raises(ConfigError) as caught:
        Governor(f"sqlite:///{home}")

    assert path in str(caught.value)
    if value != 10**5000:
        assert '"agent"' in str(caught.value)
        assert "whole number" in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [
        "0",
        "-1",
        "1.5",
        "nan",
        "inf",
        "true",
        "",
        "Unlimited",
        '"2"',
        "1" * 5000,
        "9" * 12,
        "²",
        "٣",
    ],
    ids=lambda value: value[:12],
)
def test_the_environment_refuses_it(home: str, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """``HEADWAY_LIMITS`` is named with key and value."""
    monkeypatch.setenv("HEADWAY_LIMITS", f"agent={value}")

    with pytest.raises(ConfigError, match=r"HEADWAY_LIMITS.*agent"):
        Governor(f"sqlite:///{home}")


@pytest.mark.parametrize("value", ["agent", "=3", "a//b=3", "agent:3"])
def test_the_environment_refuses_what_is_no_line(
    home: str, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """Something that is not ``key=slots`` is not guessed at."""
    monkeypatch.setenv("HEADWAY_LIMITS", value)

    with pytest.raises(ConfigError, match="HEADWAY_LIMITS"):
        Governor(f"sqlite:///{home}")


@pytest.mark.parametrize(
    "key", ["", "/", "a//b", "a\tb", " a", 3, None, "x" * 3000, "a/" * 20 + "b"]
)
def test_a_bad_key_is_refused_everywhere(govern: Govern, key: Any) -> None:
    """For limits, pauses and looks alike."""
    governor = govern()

    with pytest.raises(ConfigError):
        governor.set_limit(key, 2)
    with pytest.raises(ConfigError):
        governor.unset_limit(key)
    with pytest.raises(ConfigError):
        governor.pause(key)
    with pytest.raises(ConfigError):
        governor.resume(key)
    with pytest.raises(ConfigError):
        governor.capacity(key)
    with pytest.raises(ConfigError):
        Governor("memory://", limits={key: 2})


def test_a_pattern_is_no_key(govern: Govern) -> None:
    """A star stands in limits only."""
    governor = govern()
    for call in (governor.pause, governor.resume, governor.capacity, governor.slot):
        with pytest.raises(ConfigError, match=r"\*"):
            call("llm/*")


PROVIDERS = [
    ".",
    "..",
    "a/b",
    "/",
    "Azure",
    "azure",
    "AZURE",
    "x" * 300,
    "名前",
    "ﬀ",
    "ff",
    "é",
    "e\u0301",
]
PROVIDERS += [
    "🚀",
    "*",
    "**",
    "%",
    "%2F",
    "%2A",
    "%25",
    "a b",
    " ",
    "\n",
    "\0",
    "\x7f",
    "a\\b",
    "~",
    "-",
]
PROVIDERS += [
    "../../etc",
    "\ud800",
    "\u200b",
    "\u202e",
    "con",
    "a:b",
    "a\u00a0b",
    "'; drop table keys",
]


def test_any_name_of_a_provider_makes_a_key_of_its_own(
    govern: Govern, home: str, tmp_path: str
) -> None:
    """All are valid, all are separate, and none touches a path of its own."""
    governor = govern()
    found = [headway.llm_key(name) for name in PROVIDERS]
    found += [headway.llm_key("p", name) for name in PROVIDERS]
    assert len(set(found)) == len(found)

    governor.set_limit("llm/*", 1)
    governor.set_limit("llm/p", "unlimited")
    governor.set_limit("llm/p/*", 1)
    leases = [governor.slot(key, wait=False) for key in found]
    for lease in leases:
        lease.__enter__()
    for key in found:
        assert governor.capacity(key).used == 1
        assert key.count("/") == 1 + key.startswith("llm/p/")
    for lease in leases:
        lease.__exit__(None, None, None)
    governor.set_limit(found[0], 5)
    governor.pause(found[1])

    assert sorted(os.listdir(tmp_path)) in ([], ["home"])
    if os.path.exists(home):
        names = {name.split(".")[0] for name in os.listdir(home)}
        assert names <= {"config", "slots", "live", "fleet"}
        if "live" in names:
            assert all(len(name.split(".")[0]) == 6 for name in os.listdir(f"{home}/live"))


@pytest.mark.parametrize("name", ["", None, 3])
def test_a_provider_without_a_name_is_refused(name: Any) -> None:
    """An empty name would be a key for all."""
    with pytest.raises(ConfigError):
        headway.llm_key(name)
    with pytest.raises(ConfigError):
        headway.llm_key("p", "" if name is None else name)


def test_the_longest_name_that_cannot_be_a_key_is_refused() -> None:
    """Escaping makes names longer; beyond the bound there is a clear error, not a cut."""
    with pytest.raises(ConfigError, match="too long"):
        headway.llm_key("🚀" * 300 + "\n" * 800)
