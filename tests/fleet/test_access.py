"""Who may not come in is told why, and no secret is told to anyone."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import pytest
from tests.certificates import certified
from tests.fleet.proxy import Proxy
from tests.fleet.server import Server, free_port

from headway import ConfigError, Governor, StoreUnavailable

if TYPE_CHECKING:
    from pathlib import Path

_SECRET = "very-secret"  # noqa: S105


def told(url: str, patience: str = "300ms") -> str:
    """What someone is told who uses this address."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADWAY_STORE_TIMEOUT", patience)
        governor = Governor(url)
    with pytest.raises(StoreUnavailable) as caught:
        governor.slot("k").__enter__()
    governor.close()
    return f"{caught.value} {caught.value!r}"


def test_nothing_is_given_back_that_was_never_asked_for(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Who could not come in has nothing to repeat, and nothing more to say."""
    server.client.config_set("requirepass", _SECRET)
    told(server.url)
    server.kill()
    told(server.url)
    assert caplog.messages == []


@pytest.mark.parametrize("given", ["", "user:wrong-secret@", ":wrong-secret@"])
def test_a_wrong_password(given: str, server: Server) -> None:
    """It is told at once what is wrong, and not which password it was."""
    server.client.config_set("requirepass", _SECRET)
    text = told(server.url.replace("unix://", f"unix://{given}"), patience="1h")
    assert "secret" not in text
    assert "uth" in text or "password" in text  # as the server says it


def test_the_right_one_from_the_environment(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a user of its own who may do no more than it needs."""
    rights = "~{headway:*", "+@all", "-@admin", "-@dangerous", "+info", "+client"
    server.client.acl_setuser("agent", enabled=True, passwords=f"+{_SECRET}", reset=True)
    server.client.execute_command("ACL", "SETUSER", "agent", *rights)
    monkeypatch.setenv("HEADWAY_STORE_PASSWORD", _SECRET)
    with Governor(f"{server.url}?username=agent") as governor, governor.slot("k"):
        assert _SECRET not in governor._store.name


def test_the_right_one_from_a_file(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands there alone; a file that is not there is named."""
    server.client.config_set("requirepass", _SECRET)
    (tmp_path / "password").write_text(f"{_SECRET}\n")
    monkeypatch.setenv("HEADWAY_STORE_PASSWORD_FILE", str(tmp_path / "password"))
    with Governor(server.url) as governor, governor.slot("k"):
        assert len(governor.snapshot().leases) == 1

    monkeypatch.setenv("HEADWAY_STORE_PASSWORD_FILE", str(tmp_path / "missing"))
    with pytest.raises(ConfigError, match=r"password_file .*missing cannot be read"):
        Governor(server.url)


def test_a_user_without_the_right(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told what the user may not do."""
    server.client.execute_command("ACL", "SETUSER", "guest", "on", f">{_SECRET}", "+ping", "+info")
    monkeypatch.setenv("HEADWAY_STORE_PASSWORD", _SECRET)
    text = told(f"{server.url}?username=guest")
    assert "permission" in text
    assert _SECRET not in text


@pytest.mark.parametrize(
    "url",
    [
        f"redis://agent:{_SECRET}/with-slash@127.0.0.1:6379",
        f"redis://127.0.0.1/0?password={_SECRET}&socket_timeout={_SECRET}",
    ],
)
def test_a_url_that_is_none(url: str) -> None:
    """What is wrong with it is told without what stands in it."""
    with pytest.raises(ConfigError) as caught:
        Governor(url)
    assert _SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        (
            "redis://127.0.0.1:6379/0?foo=bar",
            "there is no option foo in an address; .*db",
        ),
        ("redis://127.0.0.1:6379?decode_responses=true", "there is no option decode_responses"),
        ("redis://127.0.0.1:6379?protocol=9", "protocol must be either 2 or 3"),
        ("redis://127.0.0.1:6379?ssl_ca_certs=/x", "ssl_ca_certs is for TLS; write rediss://"),
        ("rediss://127.0.0.1:6379?ssl_ca_certs=/x", "ssl_ca_certs names '/x', which cannot be"),
        ("redis://127.0.0.1:6379/prod", "its database is '/prod'.* numbers.*store.namespace"),
        ("redis://127.0.0.1:6379/1/2", "its database is '/1/2'"),
        ("redis://127.0.0.1:0", "its port is not a number from 1 to 65535"),
        ("redis://127.0.0.1:99999", "its port is not a number from 1 to 65535"),
        ("unix://run/redis.sock", "begins with /, as in unix:///run/redis.sock"),
        ("unix://", "begins with /, as in unix:///run/redis.sock"),
    ],
)
def test_an_address_that_cannot_be_meant(address: str, reason: str) -> None:
    """It is refused before anything is asked, with what is wrong in it."""
    with pytest.raises(ConfigError, match=reason):
        Governor(address)


@pytest.mark.parametrize("password", ["12?34", "12#34", "12/34", "12?3=4"])
def test_a_password_that_is_taken_for_something_else(password: str) -> None:
    """Nothing of it is shown, and the error says how to write it."""
    with pytest.raises(ConfigError, match=r"in a password, write") as caught:
        Governor(f"redis://agent:{password}@127.0.0.1:6379")
    assert "34" not in str(caught.value)


def test_tls_to_a_server_without_it() -> None:
    """The error says so and what to write, though that server says nothing at all."""
    server = Server(port=free_port())
    try:
        text = told(f"rediss://agent:{_SECRET}@127.0.0.1:{server.port}")
    finally:
        server.close()
    assert f"127.0.0.1:{server.port}" in text
    assert "it does not use TLS; write redis:// instead of rediss://" in text
    assert _SECRET not in text


def test_no_tls_to_a_server_that_expects_it(server: Server, tmp_path: Path) -> None:
    """The error says so at once, though that server only hangs up."""
    proxy = Proxy(server.socket, certified(tmp_path)[1])
    try:
        text = told(proxy.url.replace("rediss:", "redis:"), patience="1h")
    finally:
        proxy.close()
    assert "it expects TLS; write rediss:// instead of redis://" in text


def test_another_kind_of_server() -> None:
    """What does not speak the protocol is not asked again."""
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as other:
        threading.Thread(target=other.serve_forever).start()
        text = told(f"redis://127.0.0.1:{other.server_port}", patience="1h")
        other.shutdown()
    assert "does not speak the Redis protocol" in text


def test_a_database_that_is_not_there() -> None:
    """The server has sixteen of them."""
    server = Server(port=free_port())
    try:
        text = told(f"redis://127.0.0.1:{server.port}/16", patience="1h")
    finally:
        server.close()
    assert "it has no database of that number" in text


def test_a_server_over_tls_has_to_prove_who_it_is(server: Server, tmp_path: Path) -> None:
    """By a certificate that is trusted, and for the name in the address."""
    cert, tls = certified(tmp_path)
    proxy = Proxy(server.socket, tls)
    try:
        assert "certificate verify failed" in told(proxy.url)
        trusting = f"?ssl_ca_certs={cert}"
        assert "certificate" in told(proxy.url.replace("127.0.0.1", "localhost") + trusting)
        with Governor(proxy.url + trusting) as governor, governor.slot("k"):
            assert len(governor.snapshot().leases) == 1
    finally:
        proxy.close()
