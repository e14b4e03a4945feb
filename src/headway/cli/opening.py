"""Opening the home for one command."""

from __future__ import annotations

import logging

from headway.cli import output
from headway.governor import Governor


def governor() -> Governor:
    """The home's governor, for a ``with`` statement; what it warns of goes to stderr."""
    logger = logging.getLogger("headway")
    if not any(isinstance(handler, _Talk) for handler in logger.handlers):
        logger.addHandler(_Talk(logging.WARNING))
        logger.propagate = False
    return Governor()


class _Talk(logging.Handler):
    """Says each warning in one line, as the command line says everything."""

    def emit(self, record: logging.LogRecord) -> None:
        output.talk(f"{record.levelname.lower()}: {output.clean(record.getMessage())}")
