"""``config.toml``, parsed once."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from headway import parsed_file

if TYPE_CHECKING:
    from pathlib import Path

OLD = 1_700_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that nobody has touched for long."""
    path = tmp_path / "config.toml"
    path.write_text('[limits]\nagent = 4\n"llm/*" = 8\n')
    os.utime(path, (OLD, OLD))
    return path


def kept(path: Path) -> Path:
    """Where what it says is kept."""
    return path.with_name("config.toml.parsed")


def test_the_second_one_needs_no_parser(path: Path) -> None:
    """It finds the same without loading tomllib."""
    first = parsed_file.load(str(path))

    program = (
        "import sys; from headway import parsed_file; print(parsed_file.load(sys.argv[1]));"
        " print('tomllib' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, path], capture_output=True, text=True, check=True
    )

    assert first == {"limits": {"agent": 4, "llm/*": 8}}
    assert done.stdout == f"{first}\nFalse\n"
    assert kept(path).stat().st_mode & 0o777 == 0o600


def test_a_change_is_seen(path: Path) -> None:
    """Of the same length, with the same time, in the same file."""
    parsed_file.load(str(path))
    path.write_text(path.read_text().replace("4", "5"))
    os.utime(path, (OLD, OLD))

    assert parsed_file.load(str(path))["limits"] == {"agent": 5, "llm/*": 8}


def test_a_changed_byte_is_noticed(path: Path) -> None:
    """A damaged cache could crash the interpreter, or say something else than the file."""
    parsed_file.load(str(path))
    whole = kept(path).read_bytes()

    for place in range(len(whole)):
        kept(path).write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert parsed_file.load(str(path))["limits"] == {"agent": 4, "llm/*": 8}


def test_what_was_kept_for_another_text_is_not_used(path: Path) -> None:
    """A whole cache from a backup, or of another home, says nothing about this file."""
    parsed_file.load(str(path))
    content = kept(path).read_bytes()
    path.write_text("[limits]\nagent = 5\n")
    parsed_file.load(str(path))
    kept(path).write_bytes(content)

    assert parsed_file.load(str(path)) == {"limits": {"agent": 5}}


def test_a_cache_that_others_can_write_is_not_used(path: Path) -> None:
    """Its checksum proves nothing then: anyone can make one."""
    parsed_file.load(str(path))
    kept(path).chmod(0o666)
    marker = kept(path).stat().st_ino

    assert parsed_file.load(str(path))["limits"] == {"agent": 4, "llm/*": 8}
    assert kept(path).stat().st_ino != marker
    assert kept(path).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\x00" * 100, b"(\x02\x00\x00\x00"])
def test_what_is_kept_may_be_damaged(path: Path, content: bytes) -> None:
    """Then the file itself is read."""
    parsed_file.load(str(path))
    kept(path).write_bytes(content)

    assert parsed_file.load(str(path))["limits"] == {"agent": 4, "llm/*": 8}


def test_a_file_that_cannot_be_kept_is_parsed_each_time(path: Path) -> None:
    """Such as one with a date, or in a directory that is not to be written."""
    path.write_text("since = 2026-01-01\n")
    os.utime(path, (OLD, OLD))

    assert parsed_file.load(str(path)) == parsed_file.load(str(path))
    assert [one.name for one in path.parent.iterdir()] == ["config.toml"]


def test_what_is_wrong_is_said_each_time(path: Path) -> None:
    """A bad file is never kept."""
    path.write_text("limits = [\n")
    os.utime(path, (OLD, OLD))

    for _ in range(2):
        with pytest.raises(ValueError, match="Invalid value"):
            parsed_file.load(str(path))
    assert not kept(path).exists()
