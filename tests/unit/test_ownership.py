"""Which files are trusted, and to whom new ones belong."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING

import pytest

from headway import Governor, config, ownership
from headway.errors import ConfigError, StoreUnavailable
from headway.settings_file import SettingsFile

if TYPE_CHECKING:
    from pathlib import Path

OTHER = 54321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def path(home: str, tmp_path: Path) -> Path:
    """A good file of settings in a private home."""
    (tmp_path / "home").mkdir(mode=0o700)
    path = tmp_path / "home" / "config.toml"
    path.write_text("[limits]\nagent = 4\n")
    path.chmod(0o600)
    assert str(path.parent) == home
    return path


def problem_with(home: str) -> str:
    """Why its settings are refused."""
    with pytest.raises(ConfigError) as caught:
        config.load(home)
    return str(caught.value)


@pytest.mark.parametrize("mode", [0o666, 0o602, 0o646])
def test_settings_that_others_can_write_are_refused(home: str, path: Path, mode: int) -> None:
    """The error names the file, its mode and the fix."""
    path.parent.chmod(0o755)
    path.chmod(mode)

    problem = problem_with(home)

    assert f"{path} has mode {mode:04o}: others can write it" in problem
    assert f"chmod go-w {path}" in problem


def test_the_mode_of_a_file_that_others_cannot_reach_does_not_matter(home: str, path: Path) -> None:
    """In a home of mode 0700 nobody else gets to it."""
    path.chmod(0o666)

    assert len(config.load(home).lines) == 1


def test_a_home_in_which_others_can_replace_the_file_is_refused(home: str, path: Path) -> None:
    """A file of the right owner says little there."""
    path.parent.chmod(0o777)

    assert f"{path.parent} has mode 0777: others can write it" in problem_with(home)


def test_in_a_sticky_directory_nobody_can_replace_the_file(home: str, path: Path) -> None:
    """Such as /tmp."""
    path.parent.chmod(0o1777)

    assert len(config.load(home).lines) == 1


def test_no_settings_are_written_where_they_would_be_refused(home: str, path: Path) -> None:
    """The one who sets a limit is told, not the next one who comes."""
    path.unlink()
    path.parent.chmod(0o777)

    with pytest.raises(ConfigError, match="others can write it"):
        SettingsFile(home).set_limit("agent", 4)

    assert os.listdir(home) == []


def test_the_directory_that_a_link_points_into_counts_too(
    home: str, path: Path, tmp_path: Path
) -> None:
    """Whoever can replace the target decides what the settings are."""
    elsewhere = tmp_path / "dotfiles"
    elsewhere.mkdir()
    path.rename(elsewhere / "headway.toml")
    path.symlink_to(elsewhere / "headway.toml")
    assert len(config.load(home).lines) == 1

    elsewhere.chmod(0o777)

    assert f"{elsewhere} has mode 0777" in problem_with(home)


@pytest.mark.parametrize(("value", "trusted"), [("1", True), ("0", False), ("", False)])
def test_a_variable_trusts_the_home(
    home: str, path: Path, monkeypatch: pytest.MonkeyPatch, value: str, *, trusted: bool
) -> None:
    """Only 1 means yes."""
    path.parent.chmod(0o777)
    monkeypatch.setenv("HEADWAY_TRUST_HOME", value)

    if trusted:
        assert len(config.load(home).lines) == 1
    else:
        assert "HEADWAY_TRUST_HOME=1" in problem_with(home)


def test_a_group_of_the_users_own_is_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """With umask 002 and a group for each user, all files are open to the group."""
    import grp  # noqa: PLC0415

    user = pwd.getpwuid(os.geteuid()).pw_name
    groups = {7: (user, []), 8: ("developers", [user]), 9: (user, ["eve"])}

    def found(gid: int) -> os.stat_result:
        return os.stat_result((0o100664, 1, 1, 1, os.geteuid(), gid, 1, 0, 0, 0))

    monkeypatch.setattr(
        grp, "getgrgid", lambda gid: grp.struct_group((groups[gid][0], "x", gid, groups[gid][1]))
    )

    assert [ownership.is_private(found(gid)) for gid in groups] == [True, False, False]


@as_root
def test_settings_of_another_user_are_refused(home: str, path: Path) -> None:
    """The error names both users and the way out."""
    os.chown(path, OTHER, OTHER)

    problem = problem_with(home)

    assert f"{path} belongs to user {OTHER}, not to you (root)" in problem
    assert "HEADWAY_TRUST_HOME=1" in problem


@as_root
@pytest.mark.usefixtures("path")
def test_settings_of_root_are_good_for_everyone(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In containers most files are root's."""
    monkeypatch.setattr(os, "geteuid", lambda: OTHER)

    assert len(config.load(home).lines) == 1


@as_root
def test_a_change_keeps_owner_group_and_mode(
    home: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file stays the user's when root changes it."""
    monkeypatch.setenv("HEADWAY_TRUST_HOME", "1")
    os.chown(path.parent, OTHER, OTHER)
    os.chown(path, OTHER, OTHER + 1)
    path.chmod(0o640)

    SettingsFile(home).set_limit("agent", 5)

    found = path.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (OTHER, OTHER + 1, 0o640)
    assert {os.lstat(one).st_uid for one in path.parent.iterdir()} == {OTHER}


@as_root
def test_a_group_that_cannot_be_kept_gets_no_rights(
    home: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who is not in it may not give it the file, and another group must not read it."""
    os.chown(path, 0, OTHER)
    path.chmod(0o664)

    def forbidden(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "geteuid", lambda: OTHER)
    monkeypatch.setattr(os, "fchown", forbidden)
    SettingsFile(home).set_limit("agent", 5)

    assert path.stat().st_mode & 0o777 == 0o604


def test_no_file_is_written_through_a_link(tmp_path: Path) -> None:
    """Where others can write, it may lead to any file that we can write and they cannot."""
    victim, home = tmp_path / "victim", tmp_path / "theirs"
    victim.write_bytes(bytes(8192))
    home.mkdir()
    for name in ("worker.log", "slots.lock"):
        (home / name).symlink_to(victim)

    with pytest.raises(OSError, match="symbolic links"):
        ownership.create(str(home / "worker.log"), os.O_WRONLY | os.O_TRUNC)
    with pytest.raises(StoreUnavailable, match="symbolic links"):
        Governor(f"sqlite:///{home}").snapshot()

    assert victim.read_bytes() == bytes(8192)


@as_root
def test_a_default_home_that_root_makes_belongs_to_the_owner_of_the_directory_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``sudo`` that keeps HOME must not take ``~/.headway`` from its user; others are root's."""
    monkeypatch.setenv("HOME", str(tmp_path))
    os.chown(tmp_path, OTHER, OTHER)

    ownership.make_home(str(tmp_path / ".headway"))
    ownership.make_home(str(tmp_path / "workspace" / "home"))

    assert (tmp_path / ".headway").stat().st_uid == OTHER
    assert (tmp_path / "workspace" / "home").stat().st_uid == 0
