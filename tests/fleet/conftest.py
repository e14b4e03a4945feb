"""Fixtures of the tests with a server: one of the test's own, and processes that share it."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import pytest
from tests.cli.kit import Shell
from tests.crash.kit import Child, Crew
from tests.fleet.away import Away
from tests.fleet.proxy import Proxy
from tests.fleet.server import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tests.conftest import FakeClock

    Persons = Callable[[str], Shell]

LEASE_SECONDS = 2
# For whatever depends on how a server behaves.
on_each_server = pytest.mark.parametrize("kind", ["redis", "valkey"], indirect=True)
_ON_ITS_MACHINE = """
import os
from headway.stores import neighbours
neighbours._BASE = os.environ["MACHINE"]
"""


class Fleet(Crew):
    """Processes with a home each, as on machines of their own."""

    def __init__(self, scratch: Path, server: Server) -> None:
        super().__init__(scratch / "homes", scratch)
        self.url = server.url
        self._count = 0

    def machine(self) -> str:
        """Another one."""
        self._count += 1
        directory = self.scratch / f"machine-{self._count}"
        directory.mkdir()
        return str(directory)

    def start(self, code: str, *, before: Sequence[str] = (), **environ: str) -> Child:
        self._count += 1
        settings = {
            "MACHINE": environ.get("MACHINE") or self.machine(),
            "HEADWAY_HOME": str(self.home / str(self._count)),
            "HEADWAY_STORE_URL": self.url,
            "HEADWAY_STORE_LEASE_SECONDS": str(LEASE_SECONDS),
            "HEADWAY_LIMITS": "k=1",
        }
        code = _ON_ITS_MACHINE + textwrap.dedent(code)
        return super().start(code, before=before, **{**settings, **environ})

    def fenced_waiter(self, priority: int = 0) -> Child:
        """One that is in line for ``k``; it says ``granted TOKEN``, and leaves when told."""
        child = self.start(f"""
            governor = headway.Governor()
            with governor.slot("k", priority={priority}, on_wait=queued) as lease:
                say("granted", lease.token)
                hear()
                lease.check()
            say("left")
            hear()
        """)
        child.expect("waiting")
        return child


@pytest.fixture(autouse=True)
def lease_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the governors of the test's own process too."""
    monkeypatch.setenv("HEADWAY_STORE_LEASE_SECONDS", str(LEASE_SECONDS))


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    """Which server it is: Redis, unless a test says otherwise."""
    return str(getattr(request, "param", "redis"))


@pytest.fixture
def server(request: pytest.FixtureRequest, kind: str) -> Iterator[Server]:
    """A server that a test may harm, with options of its own."""
    server = Server(*getattr(request, "param", ()), kind=kind)
    yield server
    server.close()


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    """A network between that server and those who are given its address."""
    proxy = Proxy(server.socket)
    yield proxy
    proxy.close()


@pytest.fixture
def fleet(tmp_path: Path, server: Server) -> Iterator[Fleet]:
    """Processes on that server; all of them are gone after the test."""
    fleet = Fleet(tmp_path, server)
    try:
        yield fleet
    finally:
        fleet.clean_up()


@pytest.fixture
def person(tmp_path: Path, server: Server) -> Iterator[Persons]:
    """People with homes of their own who share the server."""
    shells: list[Shell] = []

    def come(name: str) -> Shell:
        directory = tmp_path / name
        directory.mkdir()
        shells.append(Shell(directory / "home", directory))
        shells[-1].environ |= {
            "HEADWAY_STORE_URL": server.url,
            "HEADWAY_STORE_LEASE_SECONDS": str(LEASE_SECONDS),
        }
        return shells[-1]

    try:
        yield come
    finally:
        for shell in shells:
            shell.clean_up()


@pytest.fixture
def away(tmp_path: Path, clock: FakeClock) -> Iterator[Away]:
    """Three holders; the first one is there all the time."""
    away = Away(str(tmp_path), clock)
    yield away
    away.house.close(away.holders)
