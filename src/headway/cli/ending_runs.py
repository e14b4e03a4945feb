"""Ending what runs, or is stopped, under ``headway run``: its supervisor is told, and tells it."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from headway.cli import NOT_THERE, Failure, output
from headway.cli.finding import called

if TYPE_CHECKING:
    from headway.cli.finding import Found

_OF_RUN = "headway run "


def is_run(one: Found) -> bool:
    """Whether it is a command of ``headway run``, and not a program that asks for itself."""
    return one.holder.command.startswith(_OF_RUN)


def end(one: Found) -> str:
    """Send SIGTERM to the command, or to its wait if that is stopped; what to say of it."""
    pid, host = one.holder.pid, one.holder.host
    command = output.clean(one.holder.command).removeprefix(_OF_RUN)
    if host != os.uname().nodename:
        raise Failure(
            f"{called(one)} runs on {output.clean(host)}, and can be ended there only:"
            f" headway cancel {one.id}",
            NOT_THERE,
        )
    try:
        is_there = _is_supervisor(pid)
        if is_there:
            os.kill(pid, signal.SIGTERM)
            os.kill(pid, signal.SIGCONT)  # who is stopped would not hear of it
    except ProcessLookupError:
        is_there = False
    except PermissionError:
        text = f"{called(one)} (pid {pid}) belongs to another user, who can end it"
        raise Failure(text, NOT_THERE) from None
    if not is_there:
        raise Failure(f"{called(one)} has just ended", NOT_THERE)
    return f"{called(one)} is being ended: SIGTERM was sent to {command}"


def _is_supervisor(pid: int) -> bool:
    """Whether that process can be the one: in another pid namespace it is any other."""
    import psutil  # noqa: PLC0415 - only when something is ended

    try:
        return any("headway" in word for word in psutil.Process(pid).cmdline())
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True  # the system will say so
