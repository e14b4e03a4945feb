"""``headway doctor``, on homes in every kind of trouble."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.cli.kit import until

from headway.cli import mounts, trials

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.kit import Shell

_HOLD = """
import sys, time, headway
with headway.slot("agent/test", task="held"):
    print("holding", flush=True)
    time.sleep(600)
"""


def _findings(shell: Shell, level: str, **env: str) -> list[dict[str, Any]]:
    answer = shell.run("doctor", "--json", env=env)
    assert "Traceback" not in answer.stderr
    report = json.loads(answer.stdout)
    assert report["healthy"] == (answer.returncode == 0)
    assert answer.returncode == any(f["level"] == "problem" for f in report["findings"])
    return [finding for finding in report["findings"] if finding["level"] == level]


def _holder(shell: Shell) -> subprocess.Popen[str]:
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD], env=shell.environ, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "holding\n"
    return holder


def _end(holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.communicate()


def test_a_home_that_is_not_there_is_fine_and_is_not_made(shell: Shell) -> None:
    """A newcomer's doctor finds nothing wrong and leaves nothing behind."""
    answer = shell.run("doctor")
    assert answer.returncode == 0
    assert "not there yet" in answer.stdout
    assert answer.stdout.endswith("All is well.\n")
    assert not shell.home.exists()
    assert list(shell.home.parent.iterdir()) == [shell.directory]


def test_a_home_in_use_is_well(shell: Shell) -> None:
    """A home with a live holder has nothing but good findings, and the trial is removed."""
    holder = _holder(shell)
    try:
        before = {entry.name for entry in shell.home.iterdir()}
        answer = shell.run("doctor")
        assert answer.returncode == 0
        assert "1 process alive" in answer.stdout
        assert "1 lease" in answer.stdout
        assert "All is well." in answer.stdout
        assert {entry.name for entry in shell.home.iterdir()} == before
    finally:
        _end(holder)


@pytest.mark.parametrize(("mode", "level"), [(0o755, "warning"), (0o777, "problem")])
def test_a_home_that_others_can_enter(shell: Shell, mode: int, level: str) -> None:
    """Others who can read are a warning, others who can write a problem; both are mendable."""
    shell.home.mkdir()
    shell.home.chmod(mode)
    (finding,) = _findings(shell, level)
    assert finding["about"] == "home"
    assert finding["fix"] == f"chmod 700 {shell.home}"
    subprocess.run(finding["fix"].split(), check=True)
    assert not _findings(shell, level)


def test_a_home_that_is_a_file(shell: Shell) -> None:
    """A file in the place of the home is a problem with a way out, not a traceback."""
    shell.home.write_text("not a home")
    (problem,) = _findings(shell, "problem")
    assert "is not a directory" in problem["text"]
    assert shell.home.read_text() == "not a home"


def test_a_home_below_a_file_and_one_behind_a_broken_link(shell: Shell, tmp_path: Path) -> None:
    """Paths that cannot become a home are problems."""
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert _findings(shell, "problem", HEADWAY_HOME=str(tmp_path / "file" / "home"))
    (problem,) = _findings(shell, "problem", HEADWAY_HOME=str(tmp_path / "link"))
    assert "nowhere" in problem["text"]


def test_a_broken_config(shell: Shell) -> None:
    """Every problem of the settings is told, and the rest is looked at all the same."""
    shell.run("status")
    (shell.home / "config.toml").write_text('[limits]\nagent = "many"\nllm = 0\n')
    problems = _findings(shell, "problem")
    assert [problem["about"] for problem in problems] == ["settings", "settings"]
    assert "'many'" in problems[0]["text"]
    (shell.home / "config.toml").write_text("[limits\n")
    (problem,) = _findings(shell, "problem")
    assert "not valid TOML" in problem["text"]
    assert any(finding["about"] == "store" for finding in _findings(shell, "ok"))


def test_wrong_counts_are_found_and_repaired(shell: Shell) -> None:
    """A slot that nobody has jams its key; doctor alone changes nothing, and says how to."""
    holder = _holder(shell)
    try:
        with sqlite3.connect(shell.home / "slots.db") as database:
            database.execute("update keys set used = 3 where key = 'agent'")
        database.close()
        for _ in range(2):
            (problem,) = _findings(shell, "problem")
            assert "agent: used was 3, should be 1" in problem["text"]
            assert problem["fix"] == "headway doctor --repair"
        assert shell.run("run", "--no-wait", "--on", "agent", "--", "true").returncode == 75

        answer = shell.run("doctor", "--repair")

        assert "agent: used was 3, should be 1" in answer.stdout
        assert answer.stdout.endswith("All is well.\n")
        assert shell.run("run", "--no-wait", "--on", "agent", "--", "true").returncode == 0
        assert "nothing to repair" in shell.run("doctor", "--repair").stdout
    finally:
        _end(holder)


def test_a_home_that_is_not_there_is_not_made_by_a_repair(shell: Shell) -> None:
    """There is nothing to repair in it."""
    assert "nothing to repair" in shell.run("doctor", "--repair").stdout
    assert not shell.home.exists()


def test_nothing_is_repaired_under_broken_settings(shell: Shell) -> None:
    """It is said, and the home is looked at all the same."""
    shell.run("status")
    (shell.home / "config.toml").write_text("[limits\n")
    answer = shell.run("doctor", "--repair")
    assert (answer.returncode, "nothing was repaired" in answer.stdout) == (1, True)


def test_a_holder_that_was_killed(shell: Shell) -> None:
    """A dead holder and its lease are seen, left alone, and gone after the advice was followed."""
    holder = _holder(shell)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    for _ in range(2):
        warnings = _findings(shell, "warning")
        assert [warning["about"] for warning in warnings] == ["holders", "holders"]
        assert "1 ticket of processes that are gone" in warnings[0]["text"]
        assert f"pid {holder.pid}" in warnings[1]["text"]
    shell.run("status")
    assert not _findings(shell, "warning")
    _end(holder)


def test_a_process_that_is_stopped_inside_the_store(shell: Shell) -> None:
    """Whoever keeps everyone out is named."""
    shell.run("status")
    code = (
        "import fcntl, sys, time\n"
        f"file = open({str(shell.home / 'slots.lock')!r}, 'r+')\n"
        "fcntl.flock(file, fcntl.LOCK_EX)\n"
        "print('inside', flush=True)\n"
        "time.sleep(600)\n"
    )
    blocker = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert blocker.stdout is not None
        assert blocker.stdout.readline() == "inside\n"
        (problem,) = _findings(shell, "problem")
        assert problem["about"] == "store"
        assert str(blocker.pid) in problem["text"]
    finally:
        _end(blocker)


def test_an_unknown_variable(shell: Shell) -> None:
    """A misspelt variable is a warning that names the one that was meant."""
    (warning,) = _findings(shell, "warning", HEADWAY_LIMTS="agent=3")
    assert warning["text"].startswith("HEADWAY_LIMTS means nothing")
    assert "HEADWAY_LIMITS" in warning["text"]
    assert not _findings(shell, "warning", HEADWAY_LIMITS="agent=3", HEADWAY_STORE_TIMEOUT="2s")


def test_a_limit_that_was_edited_by_hand(shell: Shell) -> None:
    """What the file says and nobody has read yet is told; any opening of the home ends that."""
    shell.run("status")
    (shell.home / "config.toml").write_text("[limits]\nagent = 7\n")
    (warning,) = _findings(shell, "warning")
    assert warning["about"] == "limits"
    assert "agent" in warning["text"]
    shell.run("status")
    assert not _findings(shell, "warning")


def test_a_budget_that_was_edited_by_hand(shell: Shell) -> None:
    """All parts of a limit are compared, not only its slots."""
    file = shell.home / "config.toml"
    shell.run("limits", "set", "llm/openai", "4", "--requests-per-minute", "60")
    assert not _findings(shell, "warning")
    file.write_text(file.read_text().replace("60", "50"))

    (warning,) = _findings(shell, "warning")

    assert warning["about"] == "limits"
    assert "llm/openai" in warning["text"]
    shell.run("limits", "reload")
    assert not _findings(shell, "warning")


def test_inside_a_lease_and_inside_one_that_is_gone(shell: Shell) -> None:
    """A lease that surrounds the doctor is told, and one that is gone is a warning."""
    inside = shell.run("run", "--", "headway", "doctor")
    assert "you are inside lease" in inside.stdout
    (warning,) = _findings(shell, "warning", HEADWAY_LEASE="gone-1")
    assert warning["fix"] == "unset HEADWAY_LEASE"


@pytest.mark.parametrize("junk", [b"junk", b""], ids=["junk", "empty"])
def test_a_database_that_is_none(shell: Shell, junk: bytes) -> None:
    """A foreign slots.db is a warning, is not touched, and what was set aside is told later."""
    shell.run("status")
    database = shell.home / "slots.db"
    database.write_bytes(junk)
    warnings = _findings(shell, "warning")
    assert any("slots.db cannot be used" in warning["text"] for warning in warnings)
    assert database.read_bytes() == junk
    shell.run("status")
    assert any("was set aside" in warning["text"] for warning in _findings(shell, "warning"))


def test_files_that_are_something_else(shell: Shell) -> None:
    """Directories and files in each other's places are problems, never a traceback."""
    shell.home.mkdir(mode=0o700)
    (shell.home / "config.toml").mkdir()
    (shell.home / "slots.lock").mkdir()
    (shell.home / "live").write_text("")
    abouts = {problem["about"] for problem in _findings(shell, "problem")}
    assert abouts == {"settings", "store", "holders"}


def test_a_lock_file_that_was_cut_short(shell: Shell) -> None:
    """It is a warning, is not touched, and the next command makes it whole."""
    shell.run("status")
    lock = shell.home / "slots.lock"
    lock.write_bytes(b"short")
    (warning,) = _findings(shell, "warning")
    assert "cut short" in warning["text"]
    assert lock.read_bytes() == b"short"
    shell.run("status")
    assert not [w for w in _findings(shell, "warning") if "cut short" in w["text"]]


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unreadable for root")
def test_a_home_that_cannot_be_read(shell: Shell) -> None:
    """A home that shuts its owner out is a problem."""
    shell.home.mkdir(mode=0o000)
    try:
        assert _findings(shell, "problem")
    finally:
        shell.home.chmod(0o700)


def test_network_file_systems_are_doubted() -> None:
    """The innermost mount counts, and its kind decides whether locks are trusted."""
    text = (
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        "40 22 0:50 / /home/a\\040b rw shared:9 - nfs4 server:/x rw\n"
        "41 22 0:51 / /mnt/s rw - fuse.sshfs host: rw\n"
    )
    found = mounts.parse_mountinfo(text)
    kinds = [mounts._innermost(path, found) for path in ("/home/a b/.headway", "/mnt/s", "/mnt/st")]
    assert kinds == ["nfs4", "fuse.sshfs", "ext4"]
    assert [bool(mounts.doubt(kind)) for kind in kinds] == [True, True, False]
    lines = "/dev/disk1 on / (apfs, local)\n//me@nas/x on /Volumes/my x (smbfs, nodev)\n"
    assert mounts.parse_mount(lines) == [("/", "apfs"), ("/Volumes/my x", "smbfs")]


def test_locks_that_do_not_hold_are_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system on which everybody gets the same lock fails the trial."""
    assert not any(trouble for _, trouble in trials.try_all(str(tmp_path)))
    monkeypatch.setattr("fcntl.flock", lambda *_: None)
    assert dict(trials.try_all(str(tmp_path)))["locks"] == "two had the same lock at the same time"
    until(lambda: not list(tmp_path.glob("doctor-*")))


def test_a_limit_that_looks_misspelt_is_a_warning(shell: Shell) -> None:
    """Wherever it was given, and as long as the other key is in use."""
    holder = _holder(shell)
    shell.run("status", env={"HEADWAY_LIMITS": "agent/tests=2"})
    try:
        (finding,) = _findings(shell, "warning")
    finally:
        _end(holder)

    assert finding["about"] == "limits"
    assert "'agent/tests'" in finding["text"]
    assert "agent/test" in finding["text"].rpartition(":")[2]


def test_secrets_among_the_settings_are_not_shown(shell: Shell) -> None:
    """Neither those of the file nor those of the environment."""
    shell.home.mkdir(mode=0o700)
    (shell.home / "config.toml").write_text('[jobs]\nnotify = ["ntfy://user:hidden@host"]\n')

    told = shell.run("doctor", env={"HEADWAY_GATEWAY_TOKEN": "hidden0123456789"}).stdout

    assert "hidden" not in told
    assert "jobs.notify set, not shown (file)" in " ".join(told.split())


def test_only_settings_that_differ_from_the_default_are_shown(shell: Shell) -> None:
    """With where they come from; the rest is for ``headway config show``."""
    shell.home.mkdir(mode=0o700)
    file = shell.home / "config.toml"
    file.write_text(
        '[jobs]\ngrace = "2s"\nkeep = "720h"\n[llm]\nproviders = { "a.b" = "openai" }\n'
    )

    (told,) = _settings(shell, HEADWAY_QUEUE_BOOST="5m")
    file.write_text("")
    (nothing,) = _settings(shell)

    assert told == (
        "not as by default: queue.boost 5m (HEADWAY_QUEUE_BOOST),"
        ' llm.providers { a.b = "openai" } (file), jobs.grace 2s (file); see: headway config show'
    )
    assert nothing == "all as by default; see: headway config show"


def _settings(shell: Shell, **env: str) -> list[str]:
    """What is said of them, beside that the file is good."""
    texts = [one["text"] for one in _findings(shell, "ok", **env) if one["about"] == "settings"]
    return texts[1:]
