"""A compressed request counts on the model that it names, and is never unpacked without bound."""

from __future__ import annotations

import gzip
import logging
import zlib
from typing import TYPE_CHECKING

import pytest
import zstandard
from tests.gateway.scripted import ASK

from headway.gateway import compression
from headway.gateway.compression import decompressed

if TYPE_CHECKING:
    from tests.gateway.kit import Running

_RAW_DEFLATE = zlib.compressobj(wbits=-15)
PACKED = {
    "": ASK,
    "identity": ASK,
    "gzip": gzip.compress(ASK),
    "X-GZIP": gzip.compress(ASK),
    "deflate": zlib.compress(ASK),
    "zstd": zstandard.compress(ASK),
    "deflate, gzip": gzip.compress(zlib.compress(ASK)),
}


@pytest.mark.parametrize("encoding", PACKED)
def test_a_body_is_read_as_it_was_before_it_was_packed(encoding: str) -> None:
    """In every encoding that clients use, also in several ones."""
    assert decompressed(PACKED[encoding], encoding, max_bytes=1000) == ASK


def test_deflate_without_a_header_is_read_too() -> None:
    """Some programs have always sent it like that."""
    packed = _RAW_DEFLATE.compress(ASK) + _RAW_DEFLATE.flush()

    assert decompressed(packed, "deflate", max_bytes=1000) == ASK


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "deflate, gzip"])
def test_unpacking_ends_at_the_bound(encoding: str) -> None:
    """A few kilobytes can stand for gigabytes."""
    zeros = bytes(10_000_000)
    packed = {
        "gzip": gzip.compress(zeros),
        "zstd": zstandard.compress(zeros),
        "deflate, gzip": gzip.compress(zlib.compress(zeros)),
    }

    assert len(decompressed(packed[encoding], encoding, max_bytes=1000)) <= 1000


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
def test_what_cannot_be_unpacked_names_no_model(encoding: str) -> None:
    """It is for the provider to refuse it."""
    assert decompressed(b"no such thing", encoding, max_bytes=1000) == b""


def test_an_unknown_encoding_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """With what follows from it."""
    compression._decompressor.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert decompressed(b"x", "br", max_bytes=1000) == b""

    (record,) = caplog.records
    assert "'br'" in record.getMessage()
    assert "count on their provider" in record.getMessage()


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_packed_request_waits_for_its_model(gateway: Running, encoding: str) -> None:
    """As the same request does unpacked."""
    gateway.governor.set_limit("llm", 1)
    with gateway.governor.slot("llm"):
        gateway.connect().post("/openai/x", PACKED[encoding], content_encoding=encoding)
        gateway.until(lambda: gateway.waiting() == 1, "the wait")
        (waiting,) = gateway.governor.snapshot().waiting
        gateway.hang_up()
        gateway.until(lambda: gateway.waiting() == 0, "the end")

    assert waiting.keys == ("llm/openai/gpt",)


def test_a_task_is_the_same_in_a_header_and_in_the_path(gateway: Running) -> None:
    """Also if its name is not of plain letters; and one in Latin-1 is read as that."""
    for path, header in (
        ("/t/pr%C3%BCfen/openai/x", b""),
        ("/openai/x", "x-headway-task: prüfen\r\n".encode()),
        ("/openai/x", "x-headway-task: prüfen\r\n".encode("latin-1")),
    ):
        gateway.connect().send(
            b"POST %b HTTP/1.1\r\nHost: localhost\r\n%bContent-Length: %d\r\n\r\n%b"
            % (path.encode(), header, len(ASK), ASK)
        )
    gateway.until(lambda: len(gateway.entries) == 3, "the answers")

    assert [entry["task"] for entry in gateway.entries] == ["prüfen"] * 3
