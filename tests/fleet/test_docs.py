"""The page about many machines: what it says to type does what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cli.kit import until

from headway import Governor, config

if TYPE_CHECKING:
    from tests.fleet.conftest import Persons
    from tests.fleet.server import Server

_PAGE = (Path(__file__).parents[2] / "docs" / "fleet.md").read_text(encoding="utf-8")
_BLOCKS = re.findall(r"```(\w*)\n(.*?)```", _PAGE, re.DOTALL)
_ADDRESS = "redis://your-server:6379"


def block(kind: str, beginning: str) -> list[str]:
    """The lines of a block that begins so, without what is said about them."""
    (found,) = [text for name, text in _BLOCKS if name == kind and text.startswith(beginning)]
    return [line.partition("  #")[0].strip() for line in found.splitlines()]


def test_two_lines_make_one_fleet_of_two_homes(person: Persons, server: Server) -> None:
    """One installs it, one names the server; then all that is typed in one counts in the other."""
    _, export = block("sh", "pip install")
    name, _, address = export.removeprefix("export ").partition("=")
    assert address == _ADDRESS
    ann, bob = person("ann"), person("bob")
    for each in (ann, bob):
        del each.environ["HEADWAY_STORE_URL"]
        each.environ[name] = server.url

    limit, run, status = (line.split()[1:] for line in block("sh", "headway limits"))
    ann.run(*limit)
    started = [shell.start(*run) for shell in (ann, bob, bob)]
    until(ann.holds(2), "two that run")
    until(lambda: len(ann.status()["waiting"]) == 1, "the third to wait")
    assert bob.run(*status).stdout.count("sleep 60") == 2
    for process in started:
        process.terminate()
        process.communicate()


def test_the_address_in_the_settings(home: Path) -> None:
    """It stands where the page says."""
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text("\n".join(block("toml", "[store]")))
    assert config.load().store_url == _ADDRESS


def test_the_user_for_headway_alone(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """May do all that Headway does, and touch nothing else."""
    (line,) = block("", "ACL SETUSER")
    server.client.execute_command(*line.split())
    monkeypatch.setenv("HEADWAY_STORE_PASSWORD", "PASSWORD")
    url = f"{server.url}?username=headway"
    with Governor(url, limits={"k": 1}) as governor, governor.slot("k"):
        governor.set_limit("k", 2)
        with governor.slot("k", wait=False):
            assert len(governor.snapshot().leases) == 2
    with server.other_client() as other:
        other.auth("PASSWORD", "headway")
        with pytest.raises(Exception, match="permission"):
            other.get("of somebody else")
