"""Homes and files of other users: what is refused, and what root leaves behind."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cli.kit import PROGRAM, Shell, until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")

# Anyone but root; it needs no entry in the list of users.
OTHER = 54321
# Ours may be in root's own directory.
_PYTHON = "/usr/bin/python3" if sys.base_prefix.startswith("/root/") else sys.executable


@pytest.fixture
def home() -> Iterator[Path]:
    """A home that belongs to another user, in a place that they can reach."""
    directory = Path(tempfile.mkdtemp(prefix="headway-other-"))
    home = directory / "home"
    home.mkdir(mode=0o700)
    directory.chmod(0o755)
    os.chown(home, OTHER, OTHER)
    yield home
    shutil.rmtree(directory)


@pytest.fixture
def shell(home: Path) -> Shell:
    """Root, in that home."""
    return Shell(home, home.parent)


def as_other(
    shell: Shell, *words: str, processes: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``headway`` as the owner of the home, who may have so many processes."""
    limited = [] if processes is None else ["prlimit", f"--nproc={processes}"]
    return subprocess.run(
        [*limited, _PYTHON, "-m", "headway", *words],
        env={**shell.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        cwd="/",
        user=OTHER,
        group=OTHER,
        extra_groups=[],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture(autouse=True)
def _reachable() -> None:
    """Skip where neither our Python nor the system's can be run by another user."""
    try:
        done = subprocess.run(
            [_PYTHON, "-c", "import sys; print(sys.version_info[:2])"],
            user=OTHER,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        pytest.skip("Python is not installed where another user can run it")
    if done.stdout.strip() != str(sys.version_info[:2]):
        pytest.skip("the system's Python is of another version")


def write_config(home: Path, text: str, *, owner: int = OTHER) -> Path:
    """A file of settings that belongs to somebody."""
    config = home / "config.toml"
    config.write_text(text)
    os.chown(config, owner, owner)
    return config


def test_root_does_not_obey_the_settings_of_another_user(shell: Shell, home: Path) -> None:
    """Its ``notify_command`` would run as root."""
    flag = home.parent / "ran"
    write_config(home, f'[jobs]\nnotify_command = "touch {flag}"\n')

    done = shell.run("submit", "--", "true")

    assert done.returncode == 78
    assert f"{home}/config.toml belongs to user {OTHER}, not to you (root)" in done.stderr
    assert "HEADWAY_TRUST_HOME=1" in done.stderr
    assert not flag.exists()
    assert not (home / "jobs.db").exists()


def test_root_obeys_them_when_told_to(shell: Shell, home: Path) -> None:
    """The variable is the way out, for one command or for a container."""
    write_config(home, "[limits]\nagent = 7\n")
    shell.environ["HEADWAY_TRUST_HOME"] = "1"

    assert json.loads(shell.run("limits", "--json").stdout)["limits"][0]["limit"] == 7


def test_root_runs_no_jobs_of_another_user(shell: Shell, home: Path) -> None:
    """A ``jobs.db`` of theirs is a list of commands that a worker of root would run."""
    assert as_other(shell, "submit", "--no-start", "--", "true").returncode == 0

    done = shell.run("jobs")

    assert done.returncode == 69
    assert f"{home}/jobs.db belongs to user {OTHER}" in done.stderr


@pytest.mark.parametrize("options", [[], ["--detach"]])
def test_no_worker_of_root_runs_in_the_home_of_another_user(
    shell: Shell, home: Path, options: list[str]
) -> None:
    """It is refused before it starts the program that a link in that home leads to."""
    done = shell.run("worker", *options)

    assert done.returncode == 69
    assert f"{home} belongs to user {OTHER}" in done.stderr
    assert list(home.iterdir()) == []


def test_a_home_that_root_has_used_first_is_still_its_owners(shell: Shell, home: Path) -> None:
    """Nothing that root makes there locks the owner out."""
    shell.environ["HEADWAY_TRUST_HOME"] = "1"
    assert shell.run("limits", "set", "agent", "4").returncode == 0
    assert shell.run("run", "--", "true").returncode == 0
    job = shell.run("submit", "--quiet", "--", "echo", "hello").stdout.strip()
    assert shell.run("wait", job).returncode == 0
    assert shell.run("worker", "stop").returncode == 0
    del shell.environ["HEADWAY_TRUST_HOME"]

    owners = {str(path.relative_to(home)): path.lstat().st_uid for path in [home, *home.rglob("*")]}
    assert {name: uid for name, uid in owners.items() if uid != OTHER} == {}
    assert "logs/worker.log" in owners
    for words in (["run", "--", "true"], ["limits", "set", "agent", "5"], ["logs", job]):
        done = as_other(shell, *words)
        assert (done.returncode, done.stderr) == (0, "")


def test_the_owner_can_see_and_wake_a_process_of_root(shell: Shell, home: Path) -> None:
    """While root holds a slot there, its lock and its socket are the owner's too."""
    shell.environ["HEADWAY_TRUST_HOME"] = "1"
    holding = subprocess.Popen(
        [PROGRAM, "run", "--", "sleep", "60"], env=shell.environ, stderr=subprocess.DEVNULL
    )
    try:
        until(lambda: list(home.glob("live/*.sock")), "its start")
        done = as_other(shell, "status")
        files = {path.name: path.stat().st_uid for path in (home / "live").iterdir()}
    finally:
        holding.terminate()
        holding.wait()

    assert (done.returncode, done.stderr) == (0, "")
    assert set(files.values()) == {OTHER}


def test_a_job_is_kept_once_when_no_worker_can_be_started(shell: Shell) -> None:
    """The command succeeds and says so; who took it for a failure would submit it again."""
    done = as_other(shell, "submit", "-q", "--", "true", processes=1)

    assert (done.returncode, done.stdout) == (0, "1\n")
    assert "job 1 is kept, but no worker could be started: no more processes" in done.stderr
    assert "ulimit -u" in done.stderr
    assert "Traceback" not in done.stderr
    listed = json.loads(as_other(shell, "jobs", "--summary", "--json", processes=1).stdout)
    assert listed["jobs"]["queued"] == 1


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_run_says_that_no_process_can_be_started(shell: Shell, processes: int) -> None:
    """One line with the way out, and the code of a command that cannot be executed."""
    done = as_other(shell, "run", "--", "true", processes=processes)

    assert (done.returncode, done.stdout) == (126, "")
    assert done.stderr.startswith("headway: no more processes or threads can be started")
    assert done.stderr.count("\n") == 1


def test_the_worker_of_another_user_is_not_stopped_and_named(shell: Shell, home: Path) -> None:
    """No traceback: who it belongs to, and that only they can stop it."""
    lock = home / "worker.lock"
    lock.write_text(f"{os.getpid()} {time.time()} x\n")
    home.chmod(0o755)
    for mode, uid in ((0o644, os.geteuid()), (0o600, os.geteuid())):
        lock.chmod(mode)
        with lock.open() as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            done = as_other(shell, "worker", "stop")
        assert (done.returncode, done.stdout) == (1, "")
        wanted = f"belongs to another user (uid {uid}); only they can stop it"
        assert wanted in done.stderr
        assert "Traceback" not in done.stderr
