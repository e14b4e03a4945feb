"""Starting a worker in the background, when a job was kept and nobody drains the queue."""

from __future__ import annotations

import os
import sys

from headway import background, family, interpreter
from headway.jobs.orders import packed, unpacked
from headway.jobs.post import Post

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# Somebody who sees a worker come by itself wants it to go by itself, too.
_IDLE_EXIT = "10m"
_MAX_LOG_BYTES = 1 << 20


def ensure_worker(home: str, environ: Mapping[str, str]) -> bool:
    """Have a worker; whether one had to be started, with these variables."""
    if Post(home).holder() is not None:
        return False
    start_worker(home, "--idle-exit", _IDLE_EXIT, **environ)
    return True


def start_worker(home: str, *options: str, **environ: str) -> int:
    """Start a worker that outlives this process, outside of any lease; its pid."""
    os.makedirs(os.path.join(home, "logs"), mode=0o700, exist_ok=True)
    log = _worker_log(home)
    environ = {**unpacked(packed(os.environ)), **environ, "HEADWAY_HOME": home}
    nowhere = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pid = os.posix_spawn(
            _program(home),
            interpreter.words("headway.cli", "worker", *options),
            environ,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, nowhere, 0),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
            ],
            setsid=True,
            setsigmask=[],
        )
    finally:
        os.close(log)
        os.close(nowhere)
    background.start(_reap, pid)
    return pid


def _program(home: str) -> str:
    """Python under a name that tells whoever guards us that the worker stands apart."""
    link = os.path.join(home, family.APART)
    if not os.path.exists(link) or os.readlink(link) != sys.executable:
        draft = f"{link}.{os.getpid()}.new"
        os.symlink(sys.executable, draft)
        os.rename(draft, link)
    return link


def _worker_log(home: str) -> int:
    """What a worker in the background says; begun anew when it has become long."""
    path = os.path.join(home, "logs", "worker.log")
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    if os.fstat(log).st_size > _MAX_LOG_BYTES:
        os.ftruncate(log, 0)
    return log


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        pass
