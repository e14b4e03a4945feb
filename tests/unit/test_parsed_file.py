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


def test_a_file_changed_just_now_is_not_kept(path: Path) -> None:
    """It may change again before the clock of the file system moves."""
    path.write_text("[limits]\nagent = 6\n")

    assert parsed_file.load(str(path)) == {"limits": {"agent": 6}}
    assert not kept(path).exists()


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
