"""Upstreams have to prove who they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.certificates import certified
from tests.gateway.kit import running
from tests.gateway.scripted import ASK, scripted

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_only_a_certificate_that_is_trusted_is_taken(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And only for the name that stands in it; nobody else gets the credentials."""
    cert, tls = certified(tmp_path)
    with scripted(tls) as upstream:
        url = upstream.url.replace("http:", "https:")
        upstreams = {"right": url, "wrong": url.replace("127.0.0.1", "localhost")}
        with running(home, upstreams) as gateway:
            client = gateway.connect()
            client.post("/right/x", ASK)
            assert b"certificate verify failed" in client.message()[1]

            monkeypatch.setenv("SSL_CERT_FILE", str(cert))
            client.post("/wrong/x", ASK)
            assert b"certificate verify failed" in client.message()[1]

        with running(home, upstreams) as gateway:
            client, provider = upstream.asked(gateway, "/right/x")
            provider.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

            assert client.message()[1] == b"{}"
