"""The whole terminal for a while: keys as they are pressed, and everything put back after."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import tty
from typing import TYPE_CHECKING, Any

from rich.live import Live

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Self

    from rich.console import Console, RenderableType

_ENDING = (signal.SIGTERM, signal.SIGHUP)
_NOTICED = (signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT)
_NUDGE = b"\0"  # no signal has this number
_MAX_TYPED = 1024
_NAMES = {"\x1b[A": "up", "\x1b[B": "down", "\x1bOA": "up", "\x1bOB": "down", "\x1b": "escape"}


class Screen:
    """The alternate screen; ``with`` puts the terminal back, whatever ends it.

    SIGTERM and a hang-up become ``SystemExit``. Ctrl-Z gives the terminal back
    as long as the program is stopped.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._keyboard = sys.stdin.fileno() if sys.stdin.isatty() else -1
        self._reading, self._writing = _pipe()
        self._mode: list[Any] = []
        self._handlers: dict[int, Callable[[int, FrameType | None], Any] | int | None] = {}
        self._live: Live | None = None

    def __enter__(self) -> Self:
        for number in _ENDING:
            self._handlers[number] = signal.signal(number, _end)
        for number in _NOTICED:
            self._handlers[number] = signal.signal(number, _notice)
        signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        try:
            self._take()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._give_back()
        except (OSError, termios.error):  # the terminal itself is gone
            pass
        signal.set_wakeup_fd(-1)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.close(self._reading)
        os.close(self._writing)
        self._writing = -1

    def draw(self, picture: RenderableType) -> None:
        """Show this instead of what is shown."""
        if self._live is not None:
            self._live.update(picture, refresh=True)

    def wait(self, seconds: float) -> list[str]:
        """Wait for keys, for at most this long; none if something else wants to be seen."""
        sources = [self._reading, *([self._keyboard] if self._keyboard >= 0 else [])]
        ready, _, _ = select.select(sources, [], [], seconds)
        if self._reading in ready and signal.SIGTSTP in os.read(self._reading, _MAX_TYPED):
            self._rest()
        if self._keyboard not in ready:
            return []
        typed = os.read(self._keyboard, _MAX_TYPED).decode(errors="replace")
        if not typed:  # nobody is at the other end any more
            raise SystemExit(128 + signal.SIGHUP)
        return _keys(typed)

    def nudge(self) -> None:
        """Make ``wait`` return; from any thread."""
        if self._writing >= 0:
            try:
                os.write(self._writing, _NUDGE)
            except OSError:  # there are nudges enough, or it is over
                pass

    def _take(self) -> None:
        if self._keyboard >= 0:
            self._mode = termios.tcgetattr(self._keyboard)
            tty.setcbreak(self._keyboard, termios.TCSADRAIN)
        self._live = Live(console=self._console, screen=True, auto_refresh=False)
        self._live.start()

    def _give_back(self) -> None:
        try:
            if self._live is not None:
                self._live.stop()
        finally:
            if self._mode:
                termios.tcsetattr(self._keyboard, termios.TCSADRAIN, self._mode)

    def _rest(self) -> None:
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take()


def follow_window() -> None:
    """Have the size of the window from the window: what was once exported does not change.

    To be called before there is a console; in a pipe the caller's wish stands.
    """
    if sys.stdout.isatty():
        for name in ("COLUMNS", "LINES"):
            os.environ.pop(name, None)


def _keys(typed: str) -> list[str]:
    """``"j\\x1b[A"`` as ``["j", "up"]``."""
    keys = []
    while typed:
        size = next((len(code) for code in _NAMES if typed.startswith(code)), 1)
        keys.append(_NAMES.get(typed[:size], typed[:size]))
        typed = typed[size:]
    return keys


def _pipe() -> tuple[int, int]:
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
    return ends


def _end(number: int, _: FrameType | None) -> None:
    """End once: a second signal must not find the terminal half put back."""
    for other in _ENDING:
        signal.signal(other, signal.SIG_IGN)
    raise SystemExit(128 + number)


def _notice(_: int, __: FrameType | None) -> None:
    """What arrived is read from the pipe."""
