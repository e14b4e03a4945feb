"""Bells: how those who watch the board hear that it changed, without looking all the time.

Each watcher has a named pipe in ``bells/``. Its name says what it watches: one job,
or everything. Whoever changed the board writes a letter into those concerned. A bell
is a hint and the board is the truth: who missed one finds out by a look now and then.
"""

from __future__ import annotations

import errno
import os
import select
import stat

from headway import ownership

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

ALL = "all"
_RING = b"."


class Bells:
    """The bells of one home."""

    def __init__(self, home: str) -> None:
        self._directory = os.path.join(home, "bells")

    def ring(self, jobs: Iterable[int]) -> None:
        """Something changed about these jobs."""
        try:
            names = os.listdir(self._directory)
        except FileNotFoundError:
            return
        concerned = {ALL, *map(str, jobs)}
        for name in names:
            if name.partition(".")[0] in concerned:
                self._ring(os.path.join(self._directory, name))

    def _ring(self, path: str) -> None:
        try:
            pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno == errno.ENXIO:  # its watcher is gone
                _unlink(path)
            return
        try:
            os.write(pipe, _RING)
        except (BlockingIOError, BrokenPipeError):
            pass  # it has rung often enough, or nobody is there any more
        finally:
            os.close(pipe)

    def watch(self, what: int | str = ALL) -> Bell:
        """A bell that rings when this job changes, or any."""
        ownership.make_directory(self._directory)
        return Bell(os.path.join(self._directory, f"{what}.{os.getpid()}.{os.urandom(3).hex()}"))


class Bell:
    """One watcher's own."""

    def __init__(self, path: str) -> None:
        self._path = path
        # Hidden until it is heard: who rings a bell that nobody hears takes it away.
        hidden = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}")
        os.mkfifo(hidden, 0o600)
        ownership.hand_over(hidden, directory=os.path.dirname(path))
        # For writing too: without a writer a pipe is always ready to be read.
        self._pipe = os.open(hidden, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        assert stat.S_ISFIFO(os.fstat(self._pipe).st_mode)
        os.rename(hidden, path)

    def fileno(self) -> int:
        """For those who wait for other things as well."""
        return self._pipe

    def wait(self, seconds: float) -> None:
        """Sleep until it rings, for at most this long."""
        select.select([self._pipe], [], [], seconds)
        self.hush()

    async def await_ring(self, seconds: float) -> None:
        """``wait`` without blocking the event loop."""
        import asyncio  # noqa: PLC0415 - plain code has no use for it

        loop, rung = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._pipe, rung.set)
        try:
            await asyncio.wait_for(rung.wait(), seconds)
        except TimeoutError:
            pass
        finally:
            loop.remove_reader(self._pipe)
            self.hush()

    def hush(self) -> None:
        """Take note of everything that rang so far."""
        try:
            os.read(self._pipe, 65536)
        except BlockingIOError:
            pass

    def close(self) -> None:
        """Watch no more."""
        _unlink(self._path)
        os.close(self._pipe)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
