"""Who may not come in is told why, and no secret is told to anyone."""

from __future__ import annotations

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


def test_a_server_that_speaks_no_tls() -> None:
    """The error says that it is about the connection, and to whom."""
    server = Server(port=free_port())
    try:
        text = told(f"rediss://agent:{_SECRET}@127.0.0.1:{server.port}")
    finally:
        server.close()
    assert f"127.0.0.1:{server.port}" in text
    assert _SECRET not in text


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
