"""Compressed request bodies: unpacked only to find the model they name, and only up to a bound."""

from __future__ import annotations

import contextlib
import importlib.util
import zlib
from functools import lru_cache
from typing import TYPE_CHECKING

from headway.telling import warn

if TYPE_CHECKING:
    from collections.abc import Callable

_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


def decompressed(body: bytes, content_encoding: str, *, max_bytes: int) -> bytes:
    """The body as it was before compression, or its first ``max_bytes``; empty if unreadable."""
    encodings = [each.strip().lower() for each in content_encoding.split(",")]
    for encoding in reversed(encodings):  # the last one was applied last
        if encoding not in {"", "identity"}:
            body = _decompressor(encoding)(body, max_bytes)
    return body


@lru_cache(maxsize=64)
def _decompressor(encoding: str) -> Callable[[bytes, int], bytes]:
    if encoding in {"gzip", "x-gzip", "deflate"}:
        return _inflate
    if encoding == "zstd" and importlib.util.find_spec("zstandard"):
        return _unpack_zstd
    hint = "; pip install zstandard changes that" if encoding == "zstd" else ""
    warn(
        f"a request body is compressed with {encoding[:40]!r}, which the gateway cannot read: such"
        f" requests count on their provider, not on their model{hint}"
    )
    return lambda _body, _max_bytes: b""


def _inflate(body: bytes, max_bytes: int) -> bytes:
    for window_bits in (_GZIP_OR_ZLIB, -zlib.MAX_WBITS):  # some omit the header of zlib
        with contextlib.suppress(zlib.error):
            return zlib.decompressobj(window_bits).decompress(body, max_bytes)
    return b""


def _unpack_zstd(body: bytes, max_bytes: int) -> bytes:
    import zstandard  # noqa: PLC0415 - few clients need it

    with contextlib.suppress(zstandard.ZstdError):
        return zstandard.ZstdDecompressor().stream_reader(body).read(max_bytes)
    return b""
