"""What other programs wrote, on its way to a terminal."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from headway.cli.terminal_text import TerminalText

RED, OFF = b"\x1b[31m", b"\x1b[0m"

# What was written, and what a terminal gets.
CASES = {
    "plain": (b"hello\n", "hello\n"),
    "letters of all scripts": ("naïve 日本 \U0001f600\n".encode(), "naïve 日本 \U0001f600\n"),
    "tabs and lines": (b"a\tb\r\nc\n", "a\tb\nc\n"),
    "colour": (b"\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m"),
    "exact colour": (b"\x1b[38:2::1:2:3mx\x1b[m", "\x1b[38:2::1:2:3mx\x1b[m"),
    "colour left on": (b"\x1b[8mhidden", "\x1b[8mhidden\x1b[0m"),
    "clear screen": (b"a\x1b[2J\x1b[Hb", "ab"),
    "cursor up and erase": (b"a\n\x1b[1A\x1b[2Kb", "a\nb"),
    "keyboard mode, which also ends in m": (b"\x1b[>4;1mx\x1b[?4mx", "xx"),
    "title": (b"\x1b]0;PWNED\x07x", "x"),
    "clipboard": (b"\x1b]52;c;cm0gLXJmIH4=\x1b\\x", "x"),
    "link": (b"\x1b]8;;http://evil\x1b\\here\x1b]8;;\x1b\\", "here"),
    "title of screen": (b"\x1bkPWNED\x1b\\x", "x"),
    "device control": (b'\x1bP$q"p\x1b\\x', "x"),
    "application command": (b"\x1b_Gf=100;AAAA\x1b\\x", "x"),
    "an unfinished title ends with its line": (b"\x1b]0;PWNED\nnext\n", "\nnext\n"),
    "an unfinished title at the end": (b"x\x1b]0;PWNED", "x"),
    "a title that a colour ends": (b"\x1b]0;PWNED\x1b[31mx\x1b[0m", "\x1b[31mx\x1b[0m"),
    "reset": (b"\x1bcx\x1b(0y\x1b#8z", "xyz"),
    "C1 in UTF-8": ("\x9b2Jx\x9d0;PWNED\x9cy\x90q\x9cz".encode(), "xyz"),
    "C1 as bytes": (b"\x9b2Jx", "\ufffd2Jx"),
    "over the line": (b"safe\rrm -rf\n", "safe\nrm -rf\n"),
    "backspace, bell, delete": (b"a\x08\x07\x7fb", "ab"),
    "bidirectional marks": ("a\u202eb\u2066c\u200fd".encode(), "abcd"),
    "invisible tags": ("a\U000e0041b\ufeffc\u200bd".encode(), "abcd"),
    "too long to be a sequence": (b"\x1b[" + b"1;" * 99 + b"m", "1;" * 99 + "m"),
}


def cleaned(*pieces: bytes, keeps_colours: bool = True) -> str:
    """What a terminal gets of these pieces."""
    text = TerminalText(keeps_colours=keeps_colours)
    return "".join([*map(text.feed, pieces), text.end()])


@pytest.mark.parametrize("name", CASES)
def test_only_text_and_colours_get_through(name: str) -> None:
    """In one piece, byte by byte, and cut in two at every place."""
    written, wanted = CASES[name]

    assert cleaned(written) == wanted
    assert cleaned(*(written[place : place + 1] for place in range(len(written)))) == wanted
    for place in range(len(written)):
        assert cleaned(written[:place], written[place:]) == wanted


def test_without_colours_nothing_but_text_is_left() -> None:
    """For a terminal that has none, and for people who want none."""
    assert cleaned(RED + b"x" + OFF, keeps_colours=False) == "x"


def test_no_control_or_format_character_gets_through() -> None:
    """Of all that there are: only line feeds, tabs, and what joins letters into one sign."""
    every = "\n".join(map(chr, range(sys.maxunicode + 1)))

    left = cleaned(every.encode(errors="replace"))

    kinds = {char for char in left if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert kinds == {"\n", "\t", "\u200c", "\u200d"}


@pytest.mark.parametrize(
    "filler", [b"\r", b"\x1b", b"\x1b]", b"\x1b[1", b"\x1b ", b"\x9b", b"\xc2"]
)
def test_hostile_output_takes_no_longer(filler: bytes) -> None:
    """A megabyte of unfinished sequences is cleaned while one waits, and not kept."""
    text = TerminalText(keeps_colours=True)

    for _ in range(16):
        text.feed(filler * 65536 + b"x")

    assert len(text._unfinished) < 100
    assert text.feed(b"\nend").endswith("\nend")
