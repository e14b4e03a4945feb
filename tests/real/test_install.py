"""Installing the agents is done once, whole, and by one at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.real.agents import NEWEST, Codex
from tests.real.install import CannotInstall, cache, install
from tests.real.kit import program_of

if TYPE_CHECKING:
    from collections.abc import Callable

_ROOT = Path(__file__).parent.parent.parent
# Stands for npm: notes its call, and brings a program that tells whose home it was.
_NPM = """\
#!/bin/sh
[ "$1" = view ] && cat "$CALLS.newest" && exit
echo called >> "$CALLS"
mkdir -p "$3/node_modules/.bin"
printf '#!/bin/sh\\necho %s\\n' "$HOME" > "$3/node_modules/.bin/codex"
[ -e "$CALLS.broken" ] && exit 1
chmod +x "$3/node_modules/.bin/codex"
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How often npm was called; it is not the real one."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in {"npm": _NPM, "node": "#!/bin/sh\n"}.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    noted = tmp_path / "calls"
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(noted))
    monkeypatch.setenv("HEADWAY_TEST_CACHE", str(tmp_path / "cache"))
    return lambda: len(noted.read_text().splitlines()) if noted.exists() else 0


def test_an_agent_is_installed_once(calls: Callable[[], int], tmp_path: Path) -> None:
    """The second call finds what the first brought, with a home of its own."""
    programs = {install(Codex()) for _ in range(2)}

    [program] = programs
    home = subprocess.run([program], capture_output=True, text=True, check=True).stdout.strip()
    assert home.startswith(str(tmp_path / "cache"))
    assert calls() == 1


def test_a_half_finished_installation_is_begun_anew(
    calls: Callable[[], int], tmp_path: Path
) -> None:
    """Without its stamp, nothing of an installation is believed."""
    (tmp_path / "calls.broken").touch()
    with pytest.raises(CannotInstall, match="npm did not install"):
        install(Codex())
    (tmp_path / "calls.broken").unlink()

    assert os.access(install(Codex()), os.X_OK)
    assert calls() == 2


def test_many_at_once_install_once(calls: Callable[[], int]) -> None:
    """Test processes that start together share one installation."""
    code = "from tests.real.agents import Codex; from tests.real.install import install"
    command = [sys.executable, "-c", f"{code}; print(install(Codex()))"]
    many = [subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE) for _ in range(4)]
    programs = {process.communicate()[0] for process in many}

    assert len(programs) == 1
    assert [process.returncode for process in many] == [0] * 4
    assert calls() == 1


def test_the_newest_has_a_place_of_its_own(calls: Callable[[], int], tmp_path: Path) -> None:
    """Its version is asked for once, and it stands beside the pinned one."""
    (tmp_path / "calls.newest").write_text("9.9.9\n")
    newest = Codex(package="a-package", version=NEWEST)

    program = install(newest)

    assert os.path.join(str(tmp_path / "cache"), "codex-9.9.9") in program
    (tmp_path / "calls.newest").write_text("9.9.10\n")
    assert install(newest) == program != install(Codex())
    assert calls() == 2


def test_a_newest_version_that_is_none_is_a_reason(
    calls: Callable[[], int], tmp_path: Path
) -> None:
    """What npm says becomes a path, so it has to look like a version."""
    (tmp_path / "calls.newest").write_text("../../elsewhere\n")
    with pytest.raises(CannotInstall, match=r"another-package is '\.\./"):
        install(Codex(package="another-package", version=NEWEST))
    assert calls() == 0


def test_where_agents_cannot_be_a_test_is_skipped_or_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without npm there is a reason to skip, unless the agents are required."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(pytest.skip.Exception, match="codex needs node and npm"):
        program_of(Codex())
    monkeypatch.setenv("HEADWAY_REQUIRE_REAL", "1")
    with pytest.raises(pytest.fail.Exception, match="codex needs node and npm"):
        program_of(Codex())


def test_the_cache_is_outside_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is chosen by HEADWAY_TEST_CACHE, then by XDG_CACHE_HOME."""
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache() == "/caches/headway-tests"
    monkeypatch.setenv("HEADWAY_TEST_CACHE", "/chosen")
    assert cache() == "/chosen"
