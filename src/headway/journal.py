"""The ``headway`` log, loaded when there is something to say: that costs as much as all of it."""

from __future__ import annotations

import _thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from logging import Logger

# Whoever has a voice of its own on a terminal gives it to the log here, before its first word.
prepare: Callable[[], None] | None = None
# Re-entrant: that may have something to say itself.
_preparing = _thread.RLock()


def log() -> Logger:
    """Where to write what no event and no error says."""
    global prepare
    import logging  # noqa: PLC0415

    with _preparing:  # the second to speak has the same voice
        first, prepare = prepare, None
        if first is not None:
            first()
    return logging.getLogger("headway")
