"""Taking a program's output in as it comes: as JSON lines, or as plain text."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

from headway import sizes
from headway.harness.lines import Lines
from headway.harness.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.harness.story import Story

_LONGEST_LINE_BYTES = 16_000_000
_LONGEST_ERROR_BYTES = 64_000
_NOISE_BYTES = 2000


class JsonLines:
    """Each line is an event of the program; what is none is kept for the reason, in part."""

    def __init__(
        self,
        story: Story,
        read: Callable[[Record, Story], None],
        read_error: Callable[[str, Story], None],
    ) -> None:
        self._story, self._read, self._read_error = story, read, read_error
        self._lines, self._error_lines = Lines(_LONGEST_LINE_BYTES), Lines(_LONGEST_ERROR_BYTES)
        self._left_out = 0

    def hear(self, output: bytes) -> None:
        for line in self._lines.feed(output):
            self._take(line)
        self._tell_of_left_out()

    def hear_error(self, output: bytes) -> None:
        for line in self._error_lines.feed(output):
            self._read_error(line.decode("utf-8", "replace"), self._story)

    def end(self) -> None:
        for line in self._lines.end():
            self._take(line)
        self._tell_of_left_out()

    def _take(self, line: bytes) -> None:
        record = Record.parse(line)
        if record is not None:
            self._read(record, self._story)
        elif len(self._story.noise) < _NOISE_BYTES:
            self._story.noise += line[:_NOISE_BYTES].decode("utf-8", "replace") + "\n"

    def _tell_of_left_out(self) -> None:
        if self._lines.left_out > self._left_out:
            self._left_out = self._lines.left_out
            longest = sizes.shown(_LONGEST_LINE_BYTES)
            self._story.leaves_out(f"an event longer than {longest} was left out")


class PlainText:
    """All output is the answer, complete when the program ends."""

    def __init__(self, story: Story) -> None:
        self._story = story
        story.is_plain = True
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def hear(self, output: bytes) -> None:
        self._story.says(self._decoder.decode(output), is_piece=True)

    def hear_error(self, output: bytes) -> None:
        """That is no part of the answer."""

    def end(self) -> None:
        self._story.says(self._decoder.decode(b"", final=True), is_piece=True)
        self._story.completes()
