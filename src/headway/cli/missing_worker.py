"""What commands do about queued jobs that no worker runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from headway.cli import output
from headway.errors import NotStartable, StoreUnavailable

if TYPE_CHECKING:
    from headway.governor import Governor

# How long a worker that was started may take to be at its post.
_PATIENCE_SECONDS, _LOOK_SECONDS = 3.0, 0.02


def replace(governor: Governor) -> None:
    """Start a worker if jobs are queued and none runs, and say so; or say why not."""
    jobs = governor.jobs
    try:
        is_started = jobs.ensure_worker()
    except NotStartable as error:
        output.talk(f"no worker runs, and none could be started: {error}")
        return
    if not is_started:
        mention(governor)
        return
    output.talk("no worker was running, so one was started")
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while jobs.worker() is None and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)


def mention(governor: Governor) -> None:
    """Say that jobs are queued and no worker runs, if that is so."""
    try:
        if not governor.jobs.lacks_worker():
            return
        off = governor.jobs.worker_off()
    except StoreUnavailable:
        return  # whoever needs the jobs themselves says so
    output.talk("no worker runs, so queued jobs do not start: headway worker --detach")
    if off is not None:
        output.talk(f"  since {output.clock(off[1])}: {off[0]}")


def facts(governor: Governor) -> dict[str, object] | None:
    """The worker as JSON shows it; nothing if none runs."""
    holder = governor.jobs.worker()
    return None if holder is None else {"pid": holder[0], "since": holder[1]}
