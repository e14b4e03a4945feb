"""Threads of Headway's own, which never take a signal that is meant for the program."""

from __future__ import annotations

import _thread

from headway.lean import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


# Set by who leaves with ``os._exit``, and need not load what only matters at a usual end.
leaves_at_once = False


def prepare() -> None:
    """Make sure that a thread of ours may load anything, such as logging.

    Who loads ``threading`` first is taken for the main thread until Python 3.13: the program
    would wait for it at its end, and never see Ctrl-C in asyncio.
    """
    if not leaves_at_once:
        __import__("threading")  # not above: it takes as long to load as all of Headway


def start(work: Callable[..., None], *args: object) -> None:
    """Run the work in a thread that does not keep the process from ending.

    ``NotStartable`` if the user has too many processes and threads.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:  # a handler that raises may run in there, when all is blocked already
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        _thread.start_new_thread(work, args)
    except RuntimeError as error:
        from headway.errors import no_more_processes  # noqa: PLC0415 - when something is wrong

        raise no_more_processes(error) from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
