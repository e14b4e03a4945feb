"""The page about testing: its files, put into a folder, are tests that pass."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.kit import PROGRAM

_PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")
_FILES = dict(re.findall(r"```python\n# (\S+\.py)\n(.*?)```", _PAGE, re.DOTALL))


def _pytest(directory: Path, *names: str, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    path = os.path.dirname(PROGRAM) + os.pathsep + os.environ["PATH"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=.", *names],
        cwd=directory,
        env={**kept, "PATH": path, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What somebody has who copied all files of the page."""
    directory = tmp_path / "project"
    directory.mkdir()
    for name, text in _FILES.items():
        (directory / name).write_text(text)
    return directory


def test_every_program_of_the_page_is_a_file() -> None:
    """Otherwise one of them would not be run here."""
    assert len(_FILES) == _PAGE.count("```python") == 5
    assert _PAGE.count("```") == 2 * (len(_FILES) + 1)


def test_all_tests_of_the_page_pass(folder: Path, home: Path) -> None:
    """With the fixture that switches limits off for all of them."""
    done = _pytest(folder)

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^6 passed", done.stdout, re.MULTILINE)
    assert not home.exists()


def test_the_command_line_of_the_page(folder: Path, home: Path) -> None:
    """It does what the fixture does; and without both of them a slot is refused."""
    (line,) = re.findall(r"```sh\n(.*?)\n```", _PAGE)
    assert line == "HEADWAY=off pytest"
    (folder / "conftest.py").unlink()

    assert _pytest(folder, "test_off.py", HEADWAY="off").returncode == 0
    assert not home.exists()
    assert _pytest(folder, "test_off.py").returncode == 1


def test_the_asserts_on_limits_can_fail(folder: Path) -> None:
    """Code that asks for no slot does not pass them."""
    code = _FILES["answers.py"].replace(
        'governor.slot("llm/openai", task=question)', "__import__('contextlib').nullcontext()"
    )
    assert code != _FILES["answers.py"]
    (folder / "answers.py").write_text(code)

    failed = _pytest(folder, "test_answers.py").stdout
    assert re.search(r"^[23] failed, [12] passed", failed, re.MULTILINE), failed
