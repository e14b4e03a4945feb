"""Text of others as plain text: labels, commands and reasons may hold escape sequences.

A terminal obeys control characters, a log takes a line break for the next entry, and
bidirectional marks make people read something else than what is there.
"""

from __future__ import annotations

_LAST_CONTROL = "\x9f"


def one_line(text: str) -> str:
    """The text on one line, its blanks as single spaces."""
    return printable(" ".join(text.split()))


def lines(text: str) -> str:
    """The text with the line breaks and tabs that it has."""
    return text if text.isprintable() else "\n".join(map(_line, text.split("\n")))


def printable(text: str) -> str:
    """The text with ``?`` for every character that is not printed."""
    return text if text.isprintable() else "".join(map(_shown, text))


def _line(text: str) -> str:
    return "\t".join(map(printable, text.split("\t")))


def _shown(char: str) -> str:
    if char.isprintable():
        return char
    return " " if char.isspace() and char > _LAST_CONTROL else "?"
