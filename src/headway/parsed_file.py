"""A TOML file, parsed once: whoever comes next finds what it says without a parser.

Loading ``tomllib`` takes longer than everything else that ``headway run`` does before
its command starts. So what was parsed is kept beside the file, with the file's mark.
"""

from __future__ import annotations

import marshal
import os
import time

_SUFFIX = ".parsed"
_FORMAT = 1
# A file that was changed just now may be changed again without its mark becoming another.
_SETTLED_SECONDS = 2.0


def load(path: str) -> dict[str, object]:
    """What the file says. Raises ``OSError``, or ``ValueError`` if it is not valid."""
    with open(path, "rb") as file:
        mark = _mark(os.fstat(file.fileno()))
        found = _remembered(path, mark)
        if found is not None:
            return found
        text = file.read()
    import tomllib  # noqa: PLC0415

    document = tomllib.loads(text.decode())
    if mark[1] < time.time_ns() - _SETTLED_SECONDS * 1e9:
        _remember(path, mark, document)
    return document


def _mark(found: os.stat_result) -> tuple[int, ...]:
    return _FORMAT, found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _remembered(path: str, mark: tuple[int, ...]) -> dict[str, object] | None:
    try:
        with open(path + _SUFFIX, "rb") as file:
            kept, document = marshal.loads(file.read())  # noqa: S302 - our own, in a private home
    except (OSError, ValueError, EOFError, TypeError):
        return None
    return document if kept == mark and isinstance(document, dict) else None


def _remember(path: str, mark: tuple[int, ...], document: dict[str, object]) -> None:
    """For the next one; if that is not possible, it parses for itself."""
    draft = f"{path}.{os.getpid()}.new"
    try:
        content = marshal.dumps((mark, document))
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(content)
        os.rename(draft, path + _SUFFIX)
    except (OSError, ValueError):  # no right to write here, a full disk, or a date in the file
        try:
            os.unlink(draft)
        except OSError:
            pass
