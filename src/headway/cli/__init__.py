"""The ``headway`` command: dispatch, and the one place where errors become exit codes.

``headway run`` stands in front of other commands, so it must start fast: it is
parsed by hand and loads neither click nor rich. Everything else is in ``app``.
"""

from __future__ import annotations

import os
import sys

from headway import errors, journal, plain_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn

# As in sysexits.h and timeout(1); a command's own code is passed on as it is.
NOT_THERE, USAGE, UNAVAILABLE, SOFTWARE, NO_SLOT, BAD_CONFIG = 1, 64, 69, 70, 75, 78
TIMED_OUT, CANCELLED, DENIED, NOT_FOUND, INTERRUPTED = 124, 125, 126, 127, 130

_CODES: tuple[tuple[type[Exception], int], ...] = (
    (errors.AtCapacity, NO_SLOT),
    (errors.QueueFull, NO_SLOT),
    (errors.NoSuchJob, NOT_THERE),
    (errors.QueueTimeout, TIMED_OUT),
    (errors.Cancelled, CANCELLED),
    (errors.ConfigError, BAD_CONFIG),
    (errors.StoreUnavailable, UNAVAILABLE),
    (errors.HeadwayError, SOFTWARE),
)


class Failure(Exception):  # noqa: N818 - it ends the program, with this code
    """A command could not do what it was asked to; says why and ends with a code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message, code)
        self.message, self.code = message, code


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and leave with its exit code."""
    words = list(sys.argv[1:] if args is None else args)
    _replace_closed_streams()
    journal.prepare = speak
    if words[:1] == ["run"] and not _asks_for_help(words):
        from headway.cli.run import run  # noqa: PLC0415

        code = guarded(lambda: run(words[1:]))
        os._exit(code)  # there is nothing to clear up, and that would take its time
    if words[:1] == ["submit"] and not _asks_for_help(words):
        from headway.cli.submit import submit  # noqa: PLC0415

        code = guarded(lambda: submit(words[1:]))
        os._exit(code)
    from headway.cli.app import start  # noqa: PLC0415

    sys.exit(guarded(lambda: start(words)))


def speak() -> None:
    """Have what Headway logs said as its other messages are: not as words of a command."""
    from headway.cli import opening, output  # noqa: PLC0415 - loaded when there is something

    opening.say_warnings(output.talk)


def _replace_closed_streams() -> None:
    """Python has none where the caller closed one; we may still have to say something."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115


def _asks_for_help(words: list[str]) -> bool:
    options = words[1 : words.index("--")] if "--" in words else words[1:2]
    return "--help" in options or "-h" in options


def guarded(command: Callable[[], int]) -> int:
    """The command's exit code, or that of what it raised, said in one line."""
    try:
        return command()
    except Failure as failure:
        _say(failure.message)
        return failure.code
    except errors.NotStartable as error:
        _say(str(error))
        return error.exit_code
    except errors.HeadwayError as error:
        for line in str(error).splitlines():
            _say(line)
        return next(code for kind, code in _CODES if isinstance(error, kind))
    except KeyboardInterrupt:
        return INTERRUPTED
    except (OSError, ImportError) as error:
        lack = _lack_of_files(error)
        if not lack:
            raise
        _say(lack)
        return UNAVAILABLE


def _lack_of_files(error: Exception) -> str:
    try:
        from headway.stores.processes import lack_of_files  # noqa: PLC0415

        return lack_of_files(error)
    except (OSError, ImportError):  # it cannot even be loaded
        return "too many files are open; raise the limit with ulimit -n"


def _say(message: str) -> None:
    try:
        sys.stderr.write(f"headway: {plain_text.lines(errors.shortened(message))}\n")
        sys.stderr.flush()
    except OSError:  # nobody to tell; the exit code says it as well
        pass
