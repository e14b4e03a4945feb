"""The ``headway`` log, loaded when there is something to say: that costs as much as all of it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from logging import Logger

# Whoever has a voice of its own on a terminal gives it to the log here.
prepare: Callable[[], None] = lambda: None  # noqa: E731 - replaced as a whole


def log() -> Logger:
    """Where to write what no event and no error says."""
    import logging  # noqa: PLC0415

    prepare()
    return logging.getLogger("headway")
