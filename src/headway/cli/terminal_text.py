"""The output of other programs on a terminal: text and colours pass, nothing else has any effect.

An agent's answer or a job's log may hold whatever a web page or a repository put there:
sequences that set the clipboard or the window's title, move the cursor over what was
printed before, or have the terminal type something.
"""

from __future__ import annotations

import codecs
import re

_COLOUR_OFF = "\x1b[0m"
# Longer ones are no sequences of a terminal, but shown as text.
_MAX_PARAMETERS = 64
# What begins with one character of C1 may as well begin with two of C0.
_C1 = str.maketrans({0x80 + byte - 0x40: f"\x1b{chr(byte)}" for byte in b"[]PX^_\\"})
_INTRODUCES_TEXT = r"\x1b[\]PX^_k]"
_WITHIN_TEXT = r"[^\x07\x18\x1a\x1b\n]*"
_SEQUENCE = re.compile(
    rf"(?P<colour>\x1b\[[0-9;:]{{0,{_MAX_PARAMETERS}}}m)"
    rf"|\x1b\[[0-?]{{0,{_MAX_PARAMETERS}}}[ -/]{{0,8}}[@-~]"
    # Titles, the clipboard, links, images: up to their end, a new sequence, or the line's end.
    rf"|{_INTRODUCES_TEXT}{_WITHIN_TEXT}(?:\x07|\x1b\\|[\x18\x1a])?"
    r"|\x1b[ -/]*[0-~]?"
    r"|(?P<line>\r+\n?)"
    r"|(?P<others>[^\x20-\x7e\n\t\x1b\r]+)"
)
# The beginning of one of these at the end of what was read.
_UNFINISHED = re.compile(
    rf"(?:(?P<text>{_INTRODUCES_TEXT}){_WITHIN_TEXT}\x1b?"
    rf"|\x1b\[[0-?]{{0,{_MAX_PARAMETERS}}}[ -/]{{0,8}}|\x1b[ -/]*|(?<!\r)\r+)\Z"
)
_JOINERS = "\u200c\u200d"
_LINE_ENDS = "\x0b\x0c\x1c\x1d\x1e\x1f\x85\u2028\u2029"


class TerminalText:
    """Cleans one stream piece by piece; a sequence may be cut in two between them."""

    def __init__(self, *, keeps_colours: bool) -> None:
        self._keeps_colours = keeps_colours
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._unfinished = ""
        self._is_coloured = False

    def feed(self, piece: bytes) -> str:
        """What may be written of everything that came so far."""
        text = self._unfinished + self._decoder.decode(piece).translate(_C1)
        cut = _UNFINISHED.search(text)
        self._unfinished = ""
        if cut is not None:
            # Of a long text that is not shown only its beginning has to be remembered.
            body = cut["text"] and cut["text"] + ("\x1b" if text.endswith("\x1b") else "")
            self._unfinished = body or cut[0]
            text = text[: cut.start()]
        return _SEQUENCE.sub(self._cleaned, text)

    def end(self) -> str:
        """What is left, and the terminal's own colour again."""
        rest = _SEQUENCE.sub(
            self._cleaned, self._unfinished + self._decoder.decode(b"", final=True)
        )
        self._unfinished = ""
        return rest + (_COLOUR_OFF if self._is_coloured else "")

    def _cleaned(self, found: re.Match[str]) -> str:
        if found["colour"] is not None and self._keeps_colours:
            self._is_coloured = found[0] not in (_COLOUR_OFF, "\x1b[m")
            return found[0]
        if found["line"] is not None:  # going back to its start would hide what stands there
            return "\n"
        return "".join(filter(_is_shown, found["others"] or ""))


def _is_shown(char: str) -> bool:
    """Whether a character can be seen: blanks of all widths, too, and what joins letters."""
    return char.isprintable() or char in _JOINERS or (char.isspace() and char not in _LINE_ENDS)
