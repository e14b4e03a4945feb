"""Opening the home for one command."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headway.cli import output
from headway.governor import Governor

if TYPE_CHECKING:
    from collections.abc import Callable


def governor() -> Governor:
    """The home's governor, for a ``with`` statement; what it warns of goes to stderr."""
    say_warnings(output.talk)
    return Governor()


def say_warnings(say: Callable[[str], None]) -> None:
    """Have what Headway logs said in one line each, and from now on in this way alone."""
    logger = logging.getLogger("headway")
    logger.handlers = [each for each in logger.handlers if not isinstance(each, _Talk)]
    logger.addHandler(_Talk(say))
    logger.propagate = False


class _Talk(logging.Handler):
    """Says each warning."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        self._say(f"{record.levelname.lower()}: {output.clean(record.getMessage())}")
