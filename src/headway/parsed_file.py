"""A TOML file of the home, parsed once: the next process finds what it says without a parser.

Loading ``tomllib`` takes longer than everything else that ``headway run`` does before
its command starts. So the parsed document is kept beside the file, with a checksum over both.
"""

from __future__ import annotations

import marshal
import os

from headway import ownership
from headway.lean import blake2b

_SUFFIX = ".parsed"
_FORMAT = b"headway config 2"
_CHECKSUM_BYTES = 32
DANGER = "and settings can run commands as you (jobs.notify_command)"


def load(path: str) -> dict[str, object]:
    """What the file says.

    Raises ``OSError``, ``ValueError`` if it is not valid, or ``ConfigError`` if somebody else
    could have written it.
    """
    with open(path, "rb") as file:
        ownership.refuse_foreign(path, os.fstat(file.fileno()), DANGER)
        text = file.read()
    found = _remembered(path, text)
    if found is not None:
        return found
    import tomllib  # noqa: PLC0415

    document = tomllib.loads(text.decode())
    _remember(path, text, document)
    return document


def _checksum(text: bytes, content: bytes) -> bytes:
    """Differs if the file or what was parsed from it has changed by a single bit."""
    digest = blake2b(text, digest_size=_CHECKSUM_BYTES, person=_FORMAT)
    digest.update(len(text).to_bytes(8, "big") + content)
    return digest.digest()


def _remembered(path: str, text: bytes) -> dict[str, object] | None:
    try:
        with open(path + _SUFFIX, "rb") as file:
            if not ownership.is_private(os.fstat(file.fileno())):
                return None
            kept = file.read()
    except OSError:
        return None
    content = kept[_CHECKSUM_BYTES:]
    if kept[:_CHECKSUM_BYTES] != _checksum(text, content):
        return None
    # Bytes that were damaged could crash the interpreter here.
    document = marshal.loads(content)  # noqa: S302 - our own, as its owner and checksum tell
    return document if isinstance(document, dict) else None


def _remember(path: str, text: bytes, document: dict[str, object]) -> None:
    """For the next process; if that is not possible, it parses for itself."""
    draft = f"{path}{_SUFFIX}.{os.getpid()}.new"
    try:
        content = marshal.dumps(document)
        with open(ownership.create(draft, os.O_WRONLY | os.O_EXCL), "wb") as file:
            file.write(_checksum(text, content) + content)
        os.rename(draft, path + _SUFFIX)
    except (OSError, ValueError):  # no right to write here, a full disk, or a date in the file
        try:
            os.unlink(draft)
        except OSError:
            pass
