"""The output of one attempt on disk: its beginning and its end, within a size.

While it runs, the output is kept in pieces, each named by the place in the output
where it starts: ``16.1.log.0`` is the beginning, half of the allowed size; of those
that follow only the last two are kept. When the attempt is over they become one file,
``16.1.log``, with a mark where something was cut.
"""

from __future__ import annotations

import os

from headway import ownership

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import FileIO

_READ_BYTES = 1 << 16
# What it takes to write down how an attempt ended, generously.
_RECORD_BYTES = 1 << 18


def path_of(home: str, job: int, number: int) -> str:
    """Where the output of an attempt is."""
    return os.path.join(home, "logs", f"{job}.{number}.log")


class LogWriter:
    """Takes output in, however much there is. A full disk is noted and does no other harm."""

    def __init__(self, path: str, max_bytes: int) -> None:
        self._path = path
        self._room, self._piece_bytes = max(1, max_bytes // 2), max(1, max_bytes // 4)
        self.written = 0
        # The first thing that went wrong with the files.
        self.trouble: str | None = None
        self._tail: list[str] = []
        self._file: FileIO | None = None
        try:
            ownership.make_directory(os.path.dirname(path))
        except OSError as error:
            self.trouble = error.strerror
        self._open(_piece(path, 0))

    def write(self, output: bytes) -> None:
        """Append; what no longer fits pushes out the middle."""
        left = memoryview(output)
        while left:
            if not self._room:
                self._start_piece()
            part = left[: self._room]
            self._put(part)
            self.written += len(part)
            self._room -= len(part)
            left = left[len(part) :]

    def note(self, text: str) -> None:
        """Write a line of our own."""
        self.write(os.fsencode(f"[headway: {text}]\n"))

    def close(self) -> None:
        """The output is complete."""
        if self._file is not None:
            self._file.close()
        if self.trouble:
            _make_way(self._path)
        join(self._path)

    def _start_piece(self) -> None:
        self._tail.append(_piece(self._path, self.written))
        if len(self._tail) > 2:  # noqa: PLR2004 - the last two
            _unlink(self._tail.pop(0))
        self._room = self._piece_bytes
        if self._file is not None:
            self._file.close()
        self._open(self._tail[-1])

    def _open(self, path: str) -> None:
        self._file = None
        try:
            self._file = _create(path)
        except OSError as error:
            self.trouble = self.trouble or error.strerror

    def _put(self, part: memoryview) -> None:
        while self._file is not None and part:
            try:
                part = part[self._file.write(part) :]
            except OSError as error:
                self.trouble = self.trouble or error.strerror
                return


def _make_way(path: str) -> None:
    """The disk is full, perhaps of this: how it ended is worth more than its last words."""
    wanted = _RECORD_BYTES
    for _, piece in reversed(_pieces(path)):
        size = os.path.getsize(piece)
        if size > wanted:
            os.truncate(piece, size - wanted)
            return


def join(path: str) -> None:
    """Make one file of the pieces, also of those that a killed supervisor left."""
    pieces = _pieces(path)
    try:
        if os.path.exists(path):
            pass  # complete: these were to be removed
        elif len(pieces) == 1:
            os.rename(pieces[0][1], path)
        elif pieces:
            with _create(f"{path}.new") as log:
                for part in read(path):
                    log.write(part)
            os.rename(f"{path}.new", path)
    except OSError:  # a full disk: the pieces stay, and are read as they are
        _unlink(f"{path}.new")
        return
    for _, piece in pieces:
        _unlink(piece)


def read(path: str) -> Iterator[bytes]:
    """The output that was kept, in order, with a mark where something was cut."""
    opened = None
    while opened is None:
        opened = _opened(path)
    try:
        place = 0
        for start, piece in opened:
            if start > place:
                yield _cut(start - place)
            place = start
            while part := piece.read(_READ_BYTES):
                place += len(part)
                yield part
    finally:
        for _, piece in opened:
            piece.close()


def _opened(path: str) -> list[tuple[int, FileIO]] | None:
    """All there is, opened; nothing if one was pushed out or joined with the others meanwhile."""
    pieces = [(0, path)] if os.path.exists(path) else _pieces(path)
    opened: list[tuple[int, FileIO]] = []
    for start, piece in pieces:
        try:
            opened.append((start, open(piece, "rb", 0)))  # noqa: SIM115 - closed by the reader
        except FileNotFoundError:
            for _, file in opened:
                file.close()
            return None
    return opened


class Follower:
    """Reads the output of an attempt while it grows."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._place = 0
        # The piece that it reads, where that starts, and how long the first one was.
        self._piece: FileIO | None = None
        self._start = -1
        self._head: int | None = None

    def new(self) -> Iterator[bytes]:
        """What came since the last time."""
        while True:
            # Looked up before the rest is read: what another piece follows does not grow.
            following = [found for found in _pieces(self._path) if found[0] > self._start]
            while self._piece is not None and (part := self._piece.read(_READ_BYTES)):
                self._place += len(part)
                yield part
            if not following:
                return
            yield from self._go_on_with(*following[0])

    def _go_on_with(self, start: int, piece: str) -> Iterator[bytes]:
        try:
            opened = open(piece, "rb", 0)  # noqa: SIM115 - kept open
        except FileNotFoundError:  # pushed out, or joined with the others meanwhile
            return
        self.close()
        if self._start == 0:
            self._head = self._place
        self._piece, self._start = opened, start
        if start > self._place:
            yield _cut(start - self._place)
            self._place = start

    def rest(self) -> Iterator[bytes]:
        """What is left when the attempt is over."""
        yield from self.new()
        try:
            log = open(self._path, "rb")  # noqa: SIM115
        except FileNotFoundError:  # the pieces could not be joined, and are read
            return
        with log:
            place = self._place
            if self._head is not None:
                log.seek(self._head)
                cut = _cut_in(log.read(_MARK_BYTES))
                tail = self._head + cut
                if place < tail:
                    yield _cut(tail - place)
                    place = tail
                # Where that stands in the file, which has a mark in place of what was cut.
                place += len(_cut(cut)) - cut if cut else 0
            log.seek(place)
            while part := log.read(_READ_BYTES):
                yield part

    def close(self) -> None:
        """Read no more."""
        if self._piece is not None:
            self._piece.close()
            self._piece = None


def remove(path: str) -> None:
    """Delete the output of an attempt."""
    for _, piece in _pieces(path):
        _unlink(piece)
    _unlink(f"{path}.new")
    _unlink(path)


def _create(path: str) -> FileIO:
    return open(ownership.create(path, os.O_WRONLY | os.O_TRUNC), "wb", 0)


def _piece(path: str, start: int) -> str:
    return f"{path}.{start}"


def _pieces(path: str) -> list[tuple[int, str]]:
    directory, name = os.path.split(path)
    try:
        names = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    starts = [other.removeprefix(f"{name}.") for other in names if other.startswith(f"{name}.")]
    return sorted((int(start), _piece(path, int(start))) for start in starts if start.isdecimal())


_BEFORE_NUMBER, _AFTER_NUMBER = b"\n[headway: ", b" bytes were cut here]\n"
_MARK_BYTES = 80


def _cut(count: int) -> bytes:
    return b"%b%d%b" % (_BEFORE_NUMBER, count, _AFTER_NUMBER)


def _cut_in(text: bytes) -> int:
    """How much was cut, if the text begins with a mark that says so."""
    number, mark, _ = text.removeprefix(_BEFORE_NUMBER).partition(_AFTER_NUMBER)
    is_mark = mark and number.isdigit() and text.startswith(_BEFORE_NUMBER)
    return int(number) if is_mark else 0


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except (FileNotFoundError, NotADirectoryError):
        pass
