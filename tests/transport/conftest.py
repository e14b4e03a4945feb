"""Fixtures of the transports' tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import httpx
import httpx2
import pytest
from tests.llm.conftest import server
from tests.slots.conftest import govern, url
from tests.transport.pages import Desk

import headway
from headway import Governor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.llm.server import Server
    from tests.transport.crews import Start

__all__ = ["govern", "server", "url"]

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@pytest.fixture
def home(home: Path) -> str:
    """The same as text."""
    return str(home)


@pytest.fixture(params=[httpx, httpx2], ids=["httpx", "httpx2"])
def lib(request: pytest.FixtureRequest) -> Any:
    """Each of the packages that clients are made of."""
    return request.param


@pytest.fixture
def governor() -> Iterator[Governor]:
    """One in memory, with one slot for everything that is called."""
    with Governor("memory://", limits={"llm": 1}) as governor:
        yield governor


@pytest.fixture
def home_governor() -> Iterator[Governor]:
    """The home's, which the children share."""
    governor = headway.governor.default()
    yield governor
    governor.close()


@pytest.fixture
def desk(tmp_path: Path, home: str, server: Server) -> Iterator[Desk]:
    """Somebody who tries what a page says; what they started is gone at the end."""
    desk = Desk(tmp_path, home, server)
    yield desk
    desk.leave()


@pytest.fixture
def start(server: Server) -> Iterator[Start]:
    """Starts processes of callers; those still alive at the end are killed."""
    started: list[subprocess.Popen[str]] = []

    def start(sdk: str, how: str, names: list[str], **more: Any) -> subprocess.Popen[str]:
        part = {"sdk": sdk, "how": how, "names": names, "url": server.url, **more}
        command = [sys.executable, "-m", "tests.transport.caller", json.dumps(part)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
        started.append(process)
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()
