"""``headway worker``: drains the job queue."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import TYPE_CHECKING

import click

from headway import config, detached, ownership, stores
from headway.cli import Failure, opening, output
from headway.cli.arguments import duration
from headway.errors import ConfigError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from headway.jobs.board import Board

    T = TypeVar("T")

_RUNS_ALREADY = _NOT_OURS = 1
_LOOK_SECONDS = 0.01


@click.group("worker", invoke_without_command=True)
@click.option(
    "--detach",
    is_flag=True,
    help="Work in the background; it writes to logs/worker.log in the home.",
)
@click.option(
    "--idle-exit",
    metavar="TIME",
    callback=duration,
    help="Stop when there was nothing to do for so long.",
)
@click.pass_context
def command(context: click.Context, *, detach: bool, idle_exit: float | None) -> int | None:
    """Run the jobs that were submitted.

    One worker per home does it; a second one says who runs. `headway submit` starts one
    by itself when none runs. Ctrl-C (or SIGTERM) lets running jobs finish and starts no
    more; a second one ends them.

    \b
    Example:
      headway worker
      headway worker --detach
      headway worker stop
    """
    if context.invoked_subcommand is not None:
        return None
    opening.refuse_off()
    if detach:
        return _detach(idle_exit)
    return work(idle_exit)


def work(idle_exit_seconds: float | None) -> int:
    """Be the worker until told to stop."""
    from headway.jobs import orders  # noqa: PLC0415
    from headway.jobs.api import IN_THE_HOME  # noqa: PLC0415
    from headway.jobs.database import refuse_foreign  # noqa: PLC0415
    from headway.jobs.post import Post  # noqa: PLC0415
    from headway.jobs.worker import Worker  # noqa: PLC0415

    settings = config.load()
    ownership.make_home(settings.home)
    refuse_foreign(settings.home)
    post = Post(settings.home)
    while True:
        if not post.take(stores.server_of(settings) or IN_THE_HOME):
            raise Failure(_who_runs(post), _RUNS_ALREADY)
        os.umask(0o077)
        for mark in orders.MARKS:
            os.environ.pop(mark, None)
        sys.argv = ["headway", "worker"]
        os.chdir("/")
        worker = Worker(settings, post=post, say=_say, idle_exit_seconds=idle_exit_seconds)
        worker.run()
        post.leave()
        # Somebody may have seen us at our post and relied on that, just before we left it.
        if not worker.is_needed():
            return 0


@command.command("stop")
@click.option("--now", is_flag=True, help="End running jobs; they are interrupted.")
def stop(*, now: bool) -> int:
    """Stop the worker, and wait until it is gone.

    It lets running jobs finish and starts no more. Queued jobs keep their places for the
    next worker.

    \b
    Example:
      headway worker stop
      headway worker stop --now
    """
    from headway.jobs.post import Post  # noqa: PLC0415

    post = Post(config.home_directory())
    try:
        holder = post.holder()
        pid = None if holder is None else holder[0]
        is_told = pid is not None and _tell(pid, signal.SIGQUIT if now else signal.SIGTERM)
    except PermissionError:
        raise Failure(_whose_worker(), _NOT_OURS) from None
    if not is_told:
        _note_off()
        output.data("No worker runs.")
        return 0
    if "HEADWAY_JOB" in os.environ:  # it waits for us
        _note_off()
        output.data(f"Worker {pid} stops when this job and all others have ended.")
        return 0
    if not now and _may_run_something():
        output.talk(f"worker {pid} finishes what runs; --now would end it")
    post.wait_until_free()
    _note_off()
    output.data(f"Worker {pid} stopped.")
    return 0


def _whose_worker() -> str:
    home = config.home_directory()
    owner = ""
    for path in (home, os.path.join(home, "worker.lock")):
        try:
            owner = f" (uid {os.stat(path).st_uid})"
        except OSError:
            break
    return f"the worker of {home} belongs to another user{owner}; only they can stop it"


def _note_off() -> None:
    """Have commands that only look start no other, until somebody asks for one."""
    from headway.jobs.worker_presence import note_off  # noqa: PLC0415

    _on_board(lambda board: note_off(board, "its worker was stopped by hand"))


def _may_run_something() -> bool:
    """Whether a job runs; also if that cannot be found out."""
    return _on_board(lambda board: bool(board.under_way())) is not False


def _on_board(work: Callable[[Board], T]) -> T | None:
    """Do this with the board; nothing if there is none, or it cannot be opened."""
    from headway.jobs.board import Board  # noqa: PLC0415

    try:
        board = Board(config.load())
        try:
            return work(board) if board.database.exists() else None
        finally:
            board.database.close()
    except (ConfigError, StoreUnavailable):
        return None


def _tell(pid: int, signum: int) -> bool:
    try:
        os.kill(pid, signum)
    except ProcessLookupError:
        return False
    return True


def _detach(idle_exit: float | None) -> int:
    from headway.jobs.database import refuse_foreign  # noqa: PLC0415
    from headway.jobs.post import Post  # noqa: PLC0415
    from headway.jobs.starting import start_worker  # noqa: PLC0415

    settings = config.load()
    ownership.make_home(settings.home)
    refuse_foreign(settings.home)
    post = Post(settings.home)
    if post.holder() is not None:
        output.talk(_who_runs(post))
        return 0
    options = [] if idle_exit is None else ["--idle-exit", f"{idle_exit:g}"]
    pid = start_worker(settings.home, *options)
    while post.holder() is None:
        if detached.has_ended(pid):
            log = detached.log_path(settings.home, "worker")
            raise Failure(f"the worker ended at once; see {log}", _RUNS_ALREADY)
        time.sleep(_LOOK_SECONDS)
    output.data(f"Worker {pid} runs in the background.")
    return 0


def _who_runs(post: object) -> str:
    holder = post.holder()  # type: ignore[attr-defined]
    if holder is None:
        return "another worker was about to start"
    pid, since = holder
    return f"a worker runs already: pid {pid}, since {output.clock(since)}"


def _say(text: str) -> None:
    output.talk(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}")
