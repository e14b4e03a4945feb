from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from headway import ConfigError, config
from headway.settings_file import SettingsFile


@pytest.fixture
def path(home: str) -> Path:
    """Where the home's file is."""
    os.makedirs(home)
    return Path(home) / "config.toml"


def test_a_new_file_is_for_its_owner_only(home: str, path: Path) -> None:
    """And has just what was set."""
    SettingsFile(home).set_limit("llm/*", "unlimited")

    assert tomllib.loads(path.read_text()) == {"limits": {"llm/*": "unlimited"}}
    assert path.stat().st_mode & 0o777 == 0o600


def test_everything_else_in_the_file_survives(home: str, path: Path) -> None:
    """Comments, order, blank lines and line ends, byte for byte."""
    before = b'# top\r\n\r\n[limits] # mine\r\n"b" = 2\r\n# why\r\n"a" = 1 # one\r\n\r\n[queue]\r\n'
    path.write_bytes(before)

    SettingsFile(home).set_limit("a", 5)

    assert path.read_bytes() == before.replace(b'"a" = 1', b'"a" = 5')


def test_setting_back_gives_the_same_file(home: str, path: Path) -> None:
    """Nothing piles up."""
    before = '# top\n\n[limits]\n"a" = 1 # one\n'
    path.write_text(before)
    file = SettingsFile(home)

    for limit in (2, 3, 1):
        file.set_limit("a", limit)

    assert path.read_text() == before


def test_a_table_is_changed_part_by_part(home: str, path: Path) -> None:
    """What else a person wrote there stays, wherever it came from."""
    before = '[limits]\n"llm/a" = { requests_per_minute = 60, slots = 4 } # both\n"llm/b" = 3\n'
    path.write_text(before)
    file = SettingsFile(home)

    file.set_limit("llm/a", 5)
    file.set_limit("llm/b", {"requests_per_minute": 9})
    file.set_limit("llm/c", {"requests_per_minute": 7})
    file.set_limit("llm/a", {"requests_per_minute": 61})

    after = (
        before.replace("60", "61")
        .replace("4 }", "5 }")
        .replace("= 3", "= {slots = 3, requests_per_minute = 9}")
    )
    assert path.read_text() == after + '"llm/c" = {requests_per_minute = 7}\n'
    config.load(home, {})


def test_unsetting_what_is_not_there_writes_nothing(home: str, path: Path) -> None:
    """Not even a file."""
    file = SettingsFile(home)
    file.unset_limit("a")
    file.resume("a")

    assert not path.exists()


def test_pausing_goes_to_the_top_and_keeps_the_rest(home: str, path: Path) -> None:
    """A list before the first table, once for each key."""
    path.write_text("# top\n[limits]\n# why\na = 1\n")
    file = SettingsFile(home)

    file.pause("a")
    file.pause("b/c")
    file.pause("a")
    assert tomllib.loads(path.read_text()) == {"paused": ["a", "b/c"], "limits": {"a": 1}}
    file.resume("a")

    assert tomllib.loads(path.read_text()) == {"paused": ["b/c"], "limits": {"a": 1}}
    assert "# top" in path.read_text()
    assert "# why" in path.read_text()


_WITH_REASONS = """\
# top
paused = [ # who may not
  "llm/openai",  # bill unpaid
  # the big ones:
  "agent/opus",  # says Ada
  "agent/gpt"  # says Bob
  # nobody else
] # end

[limits]
a = 1
"""


def test_comments_in_the_list_of_pauses_survive(home: str, path: Path) -> None:
    """Only the entry that comes or goes changes; a comment beside it goes with it."""
    path.write_text(_WITH_REASONS)
    file = SettingsFile(home)

    file.pause("k")
    assert sorted(tomllib.loads(path.read_text())["paused"]) == [
        "agent/gpt",
        "agent/opus",
        "k",
        "llm/openai",
    ]
    assert _comments_in(path) == _comments_in(_WITH_REASONS)
    file.resume("k")
    file.resume("agent/opus")

    assert tomllib.loads(path.read_text())["paused"] == ["llm/openai", "agent/gpt"]
    kept = [comment for comment in _comments_in(_WITH_REASONS) if comment != "says Ada"]
    assert _comments_in(path) == kept


def _comments_in(written: Path | str) -> list[str]:
    text = written if isinstance(written, str) else written.read_text()
    return [line.partition("# ")[2] for line in text.splitlines() if "#" in line]


@pytest.mark.parametrize(
    "laid_out",
    [
        "[]  # none",
        "[\n  # none\n]",
        "['a', \"b\"]  # both",
        "['a' # one\n, 'b' # other\n]",
        "[\n'a',\n'b',\n]",
        "['a', 'b' # without a comma\n# one more\n# and one\n]",
        "['a', 'a', 'b']",
    ],
)
def test_a_list_of_pauses_may_be_laid_out_in_any_way(home: str, path: Path, laid_out: str) -> None:
    """It comes out right, and no comment is lost when a key comes."""
    path.write_text(f"paused = {laid_out}\n")
    file, before = SettingsFile(home), _comments_in(path)

    file.pause("k")
    assert set(tomllib.loads(path.read_text())["paused"]) - {"a", "b"} == {"k"}
    assert _comments_in(path) == before
    for key in ("k", "a", "b"):
        file.resume(key)

    assert tomllib.loads(path.read_text()) == {"paused": []}


def test_a_file_that_is_a_link_stays_one(home: str, path: Path, tmp_path: Path) -> None:
    """What it points to is changed: a person's dotfiles."""
    target = tmp_path / "dotfiles.toml"
    target.write_text("# mine\n")
    path.symlink_to(target)

    SettingsFile(home).set_limit("a", 1)

    assert path.is_symlink()
    assert target.read_text().startswith("# mine\n")
    assert tomllib.loads(target.read_text()) == {"limits": {"a": 1}}


@pytest.mark.parametrize("key", ['a"b', "a'b", "a.b", "a = b", "ключ", "a\\b", "#x", "a b/c"])
def test_any_key_can_be_written_and_read(home: str, path: Path, key: str) -> None:
    """Quoting is the file's business."""
    file = SettingsFile(home)

    file.set_limit(key, 3)
    file.pause(key)

    assert tomllib.loads(path.read_text()) == {"limits": {key: 3}, "paused": [key]}
    file.unset_limit(key)
    file.resume(key)
    assert tomllib.loads(path.read_text()) == {"limits": {}, "paused": []}


@pytest.mark.parametrize("text", [b"[limits\n", b"\xff", b"limits = 3\n", b'limits = "x"\n'])
def test_a_broken_file_is_refused_and_left_alone(home: str, path: Path, text: bytes) -> None:
    """Whoever wrote it has to mend it."""
    path.write_bytes(text)

    with pytest.raises(ConfigError, match=str(path)):
        SettingsFile(home).set_limit("a", 1)
    with pytest.raises(ConfigError, match=str(path)):
        SettingsFile(home).unset_limit("a")

    assert path.read_bytes() == text


@pytest.mark.parametrize("text", ["paused = 3\n", 'paused = "abc"\n', "[paused]\na = 1\n"])
def test_a_broken_list_of_pauses_is_refused_and_left_alone(
    home: str, path: Path, text: str
) -> None:
    """It is not taken for something that it is not."""
    path.write_text(text)

    with pytest.raises(ConfigError, match=str(path)):
        SettingsFile(home).pause("a")
    with pytest.raises(ConfigError, match=str(path)):
        SettingsFile(home).resume("a")

    assert path.read_text() == text


def test_a_write_that_fails_leaves_the_old_file_and_no_other(
    home: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All or nothing."""
    path.write_text("# old\n")

    def fail(*_: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no"):
        SettingsFile(home).set_limit("a", 1)

    assert path.read_text() == "# old\n"
    assert sorted(os.listdir(home)) == ["config.toml", "config.toml.parsed"]
