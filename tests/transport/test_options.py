"""Bad values are refused when a transport is made, and what is missing is named."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import httpx
import httpx2
import pytest
from tests.transport.kit import Provider, ask

from headway import ConfigError, Governor
from headway.llm import AsyncHeadwayTransport, HeadwayTransport, Retry

BAD: list[dict[str, Any]] = [
    {"provider": ""},
    {"provider": 3},
    {"governor": "memory://"},
    {"transport": "httpx"},
    {"task": ""},
    {"task": 16},
    {"priority": 101},
    {"priority": True},
    {"timeout": -1},
    {"timeout": "soon"},
    {"timeout": True},
    {"on_wait": "print"},
    {"raise_truncated": 1},
    {"raise_truncated": None},
    {"retry": 0},
    {"retry": True},
    {"retry": 1.5},
    {"retry": "3"},
]


@pytest.mark.parametrize("make", [HeadwayTransport, AsyncHeadwayTransport])
@pytest.mark.parametrize("bad", BAD, ids=str)
def test_a_bad_value_is_refused_at_once(make: Any, bad: dict[str, Any]) -> None:
    """By an error that names it."""
    with pytest.raises(ConfigError):
        make(**bad)


@pytest.mark.parametrize("bad", [{"attempts": 0}, {"attempts": True}, {"max_wait": 0}], ids=str)
def test_a_retry_is_checked_as_well(bad: dict[str, Any]) -> None:
    """When it is made."""
    with pytest.raises(ConfigError):
        Retry(**bad)


def test_a_transport_of_the_wrong_kind_is_refused() -> None:
    """The message says which kind is meant."""
    with pytest.raises(ConfigError, match=r"handle_request\(\).*plain"):
        HeadwayTransport(transport=httpx.AsyncHTTPTransport())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"handle_async_request\(\).*async"):
        AsyncHeadwayTransport(transport=httpx.HTTPTransport())  # type: ignore[arg-type]


def test_a_transport_of_the_other_package_is_refused(governor: Governor) -> None:
    """Before the request is sent into an assertion of that package."""
    client = httpx2.Client(transport=HeadwayTransport(None, governor, httpx.HTTPTransport()))
    with pytest.raises(ConfigError, match="one of httpx, but the client is one of httpx2"):
        ask(client)


def test_a_request_of_no_package_is_refused(governor: Governor) -> None:
    """It has come to the wrong place."""
    transport = HeadwayTransport(None, governor, Provider(httpx))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="httpx or httpx2"):
        transport.handle_request("GET /")  # type: ignore[call-overload]


def _run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    )
    return done.stdout.strip()


def _loaded_by(module: str, *names: str) -> str:
    return _run(f"import sys, {module}; print([n for n in {names} if n in sys.modules])")


def test_headway_loads_no_client() -> None:
    """Neither does it load the room for them."""
    assert _loaded_by("headway", "httpx", "httpx2", "stamina", "headway.llm") == "[]"


def test_the_room_loads_only_the_package_that_is_used() -> None:
    """The other one would take its time for nothing."""
    assert _loaded_by("headway.llm", "httpx", "httpx2", "stamina") == "[]"
    assert _loaded_by("headway.llm", "headway.governor") == "['headway.governor']"


def test_without_a_client_the_extra_is_named() -> None:
    """Instead of an error from deep inside."""
    program = """
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if "httpx" in name else find(name, *more)
import headway.llm
try:
    from headway.llm import HeadwayTransport
except ImportError as error:
    print(error)
"""
    assert "pip install 'headway[llm]'" in _run(program)


def test_without_stamina_the_extra_is_named() -> None:
    """Only by those who want to retry."""
    program = """
import sys
sys.modules["stamina"] = None
from headway.llm import HeadwayTransport
HeadwayTransport()
try:
    HeadwayTransport(retry=2)
except ValueError as error:
    print(error)
"""
    assert "pip install 'headway[llm]'" in _run(program)
