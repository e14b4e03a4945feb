"""Starting a worker in the background, when a job was kept and nobody drains the queue."""

from __future__ import annotations

import os

from headway import detached
from headway.jobs.orders import packed, unpacked
from headway.jobs.post import Post

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# Somebody who sees a worker come by itself wants it to go by itself, too.
_IDLE_EXIT = "10m"


def ensure_worker(home: str, environ: Mapping[str, str]) -> bool:
    """Have a worker; whether one had to be started, with these variables."""
    if Post(home).holder() is not None:
        return False
    start_worker(home, "--idle-exit", _IDLE_EXIT, **environ)
    return True


def start_worker(home: str, *options: str, **environ: str) -> int:
    """Start a worker that outlives this process, outside of any lease; its pid."""
    variables = {**unpacked(packed(os.environ)), **environ}
    return detached.start(home, "worker", *options, environ=variables)
