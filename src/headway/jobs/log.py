"""The output of one attempt on disk: its beginning and its end, within a size.

While it runs, the output is kept in pieces, each named by the place in the output
where it starts: ``16.1.log.0`` is the beginning, half of the allowed size; of those
that follow only the last two are kept. When the attempt is over they become one file,
``16.1.log``, with a mark where something was cut.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import FileIO

_READ_BYTES = 1 << 16


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
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
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
    if os.path.exists(path):
        yield from _parts(path)
        return
    place = 0
    for start, piece in _pieces(path):
        if start > place:
            yield _cut(start - place)
        place = start
        for part in _parts(piece):
            place += len(part)
            yield part


class Follower:
    """Reads the output of an attempt while it grows."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._place = 0
        self._piece: FileIO | None = None

    def new(self) -> Iterator[bytes]:
        """What came since the last time."""
        while True:
            if self._piece is not None:
                while part := self._piece.read(_READ_BYTES):
                    self._place += len(part)
                    yield part
            following = [
                (start, piece) for start, piece in _pieces(self._path) if start >= self._place
            ]
            if self._piece is not None:
                following = [(start, piece) for start, piece in following if start > 0]
            if not following:
                return
            yield from self._go_on_with(*following[0])

    def _go_on_with(self, start: int, piece: str) -> Iterator[bytes]:
        try:
            opened = open(piece, "rb", 0)  # noqa: SIM115 - kept open
        except FileNotFoundError:  # pushed out, or joined with the others meanwhile
            return
        self.close()
        self._piece = opened
        if start > self._place:
            yield _cut(start - self._place)
            self._place = start

    def rest(self, total: int) -> Iterator[bytes]:
        """What is left when the attempt is over and has written so much in all."""
        yield from self.new()
        missing = total - self._place
        if missing <= 0:
            return
        with open(self._path, "rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(min(self._place, size), size - missing))
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
    _unlink(path)


def _create(path: str) -> FileIO:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    return open(descriptor, "wb", 0)


def _parts(path: str) -> Iterator[bytes]:
    try:
        with open(path, "rb") as source:
            while part := source.read(_READ_BYTES):
                yield part
    except FileNotFoundError:
        return


def _piece(path: str, start: int) -> str:
    return f"{path}.{start}"


def _pieces(path: str) -> list[tuple[int, str]]:
    directory, name = os.path.split(path)
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    starts = [other.removeprefix(f"{name}.") for other in names if other.startswith(f"{name}.")]
    return sorted((int(start), _piece(path, int(start))) for start in starts if start.isdecimal())


def _cut(count: int) -> bytes:
    return f"\n[headway: {count} bytes were cut here]\n".encode()


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
