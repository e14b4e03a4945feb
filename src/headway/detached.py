"""Programs of Headway's own that run in the background and outlive the process that starts them."""

from __future__ import annotations

import os
import sys

from headway import background, family, interpreter, ownership
from headway.errors import NotStartable, no_more_processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_LOG_BYTES = 1 << 20


def start(home: str, command: str, *options: str, environ: Mapping[str, str]) -> int:
    """Start ``headway COMMAND`` outside of any lease, with its log in the home; its pid.

    ``NotStartable`` if the user has too many processes.
    """
    ownership.make_directory(os.path.join(home, "logs"))
    log = _log(home, command)
    nowhere = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pid = os.posix_spawn(
            _program(home),
            interpreter.words("headway.cli", command, *options),
            {**environ, "HEADWAY_HOME": home},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, nowhere, 0),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
            ],
            setsid=True,
            setsigmask=[],
        )
    except OSError as error:
        raise no_more_processes(error) from error
    finally:
        os.close(log)
        os.close(nowhere)
    try:
        background.start(_reap, pid)
    except NotStartable:
        pass  # it is a zombie until this process ends, and runs all the same
    return pid


def has_ended(pid: int) -> bool:
    """Whether a program that this process has started is over."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True  # it was reaped


def log_path(home: str, command: str) -> str:
    """Where such a program writes what it has to say."""
    return os.path.join(home, "logs", f"{command}.log")


def _program(home: str) -> str:
    """Python under a name that tells a supervisor round us that this one is not its own."""
    link = os.path.join(home, family.APART)
    if not os.path.exists(link) or os.readlink(link) != sys.executable:
        draft = f"{link}.{os.getpid()}.new"
        os.symlink(sys.executable, draft)
        ownership.hand_over(draft, directory=home)
        os.rename(draft, link)
    return link


def _log(home: str, command: str) -> int:
    """The descriptor of its log; begun anew when it has become long."""
    log = ownership.create(log_path(home, command), os.O_WRONLY | os.O_APPEND)
    if os.fstat(log).st_size > _MAX_LOG_BYTES:
        os.ftruncate(log, 0)
    return log


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        pass
