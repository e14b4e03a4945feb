"""The README, from its top, as a newcomer runs it: fresh environment, fresh home."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from headway import config

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
# Stands in for a coding agent, which a newcomer may not have.
AGENT = '#!/bin/sh\necho "agent: $2"\nsleep 0.2\n'


def _blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


class Newcomer:
    """Someone with an empty directory, a fresh HOME and a virtual environment."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "work"
        self.directory.mkdir()
        programs = directory / "venv" / "bin"
        subprocess.run([sys.executable, "-m", "venv", directory / "venv"], check=True)
        (programs / "opencode").write_text(AGENT)
        (programs / "opencode").chmod(0o755)
        shutil.copy(ROOT / "examples" / "pretend" / "claude", programs)
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("HEADWAY_")}
        inherited.pop("PYTHONPATH", None)
        self._environ = {
            **inherited,
            "HOME": str(self.directory),
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
        for name in (".config/pip/pip.conf", ".pip/pip.conf"):
            kept = Path.home() / name
            if kept.exists():
                self._environ["PIP_CONFIG_FILE"] = str(kept)

    def does(self, *command: str, cwd: Path | None = None) -> str:
        """Run it; all that was printed, if it went well."""
        done = subprocess.run(
            command,
            env=self._environ,
            cwd=cwd or self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Newcomer:
    """After the first block of the README: Headway is installed."""
    newcomer = Newcomer(tmp_path_factory.mktemp("newcomer"))
    newcomer.does("bash", "-e", "-c", _blocks("sh")[0], cwd=ROOT)
    return newcomer


@pytest.mark.timeout(300)
def test_the_shell_part_works_as_it_stands(newcomer: Newcomer) -> None:
    """Both agents run, and the limits are in the file."""
    shown = newcomer.does("bash", "-e", "-c", _blocks("sh")[1])

    for said in ("agent: fix issue 16", "agent: fix issue 17", "room for one more"):
        assert said in shown, shown
    written = (newcomer.directory / ".headway" / "config.toml").read_text()
    assert tomllib.loads(written)["limits"] == {"agent": 3, "llm/anthropic": 4}


@pytest.mark.timeout(300)
def test_the_part_about_jobs_works_as_it_stands(newcomer: Newcomer) -> None:
    """Both jobs run, one after the other."""
    shown = newcomer.does("bash", "-e", "-c", _blocks("sh")[2])
    newcomer.does("headway", "worker", "stop")

    assert "queued as 1, position 1" in shown
    assert "agent: fix issue 19" in shown


@pytest.mark.timeout(300)
def test_the_part_about_agents_works_as_it_stands(newcomer: Newcomer) -> None:
    """A prompt is answered."""
    (command,) = _blocks("sh")[3:]

    assert "claude has looked at: fix issue 20" in newcomer.does("bash", "-e", "-c", command)


@pytest.mark.timeout(300)
def test_the_page_about_agents_works(newcomer: Newcomer, tmp_path: Path) -> None:
    """Its programs run, and its settings can be loaded."""
    page = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
    first, *others = _blocks("python", page)
    (settings,) = _blocks("toml", page)
    (tmp_path / "config.toml").write_text(settings)
    config.load(str(tmp_path), {})

    assert newcomer.does("python", "-c", first).count("succeeded") == 3
    for program in others:
        newcomer.does("python", "-c", program)


@pytest.mark.timeout(300)
def test_the_page_about_jobs_works(newcomer: Newcomer, tmp_path: Path) -> None:
    """Its program runs, and its settings can be loaded."""
    page = (ROOT / "docs" / "jobs.md").read_text(encoding="utf-8")
    (program,) = _blocks("python", page)
    for number, settings in enumerate(_blocks("toml", page)):
        home = tmp_path / str(number)
        home.mkdir()
        (home / "config.toml").write_text(settings)
        config.load(str(home), {})

    shown = newcomer.does("python", "-c", program)

    assert "1 ok" in shown


@pytest.mark.timeout(300)
def test_the_python_part_works_as_it_stands(newcomer: Newcomer) -> None:
    """In a process of its own, on the same home."""
    program, _ = _blocks("python")  # the second calls a model: tests/transport/test_docs.py

    shown = newcomer.does("python", "-c", program)

    assert "running as " in shown
    assert "an answer to who goes next? ok" in shown


def test_the_settings_part_is_valid(tmp_path: Path) -> None:
    """Every line of it is one of the limits in force."""
    (settings,) = _blocks("toml")
    (tmp_path / "config.toml").write_text(settings)

    lines = config.load(str(tmp_path), {}).lines

    assert {line.pattern: line.slots for line in lines} == tomllib.loads(settings)["limits"]


def test_every_file_it_links_to_is_there() -> None:
    """Pictures and documents."""
    links = re.findall(r"\]\(([^)#]+)\)", README)

    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
