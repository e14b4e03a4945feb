"""Opening the home for one command."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from headway import config
from headway.cli import BAD_CONFIG, Failure, output
from headway.governor import Governor
from headway.stores import place_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.config import Settings


def governor(*, may_be_off: bool = False) -> Governor:
    """The home's governor, for a ``with`` statement; what it warns of goes to stderr.

    Only commands that need nothing but slots ``may_be_off``.
    """
    say_warnings(output.talk)
    if not may_be_off:
        refuse_off()
    return Governor()


def place(settings: Settings) -> str:
    """The server or the home where slots are counted, for people."""
    found = place_of(settings)
    person = os.path.expanduser("~")
    return f"~{found[len(person) :]}" if found.startswith(person + os.sep) else found


def refuse_off() -> None:
    """Raise if ``HEADWAY=off`` is set: then there is no home to show or to change."""
    if config.is_off():
        raise Failure(
            "HEADWAY=off is set: no limits are in force, and there is no home to show or to"
            " change\n  with the limits: env -u HEADWAY headway ...",
            BAD_CONFIG,
        )


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
