"""Every exception Headway raises.

Each keeps its arguments in ``args``, so it survives pickling, and says in its
text what to do next.
"""

from __future__ import annotations

from headway import plain_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from headway.views import Capacity


# Messages of more characters lose their middle: that is a value, and what is wrong with it and
# how to mend that stand before and after.
_LONGEST_MESSAGE, _KEPT_AT_THE_START, _KEPT_AT_THE_END = 2000, 1200, 700


def shortened(message: str) -> str:
    """The message, without its middle if it is very long."""
    if len(message) <= _LONGEST_MESSAGE:
        return message
    start, end = message[:_KEPT_AT_THE_START], message[-_KEPT_AT_THE_END:]
    left_out = len(message) - len(start) - len(end)
    return f"{start} [... {left_out} characters left out ...] {end}"


class HeadwayError(Exception):
    """The parent of all errors below."""


class AtCapacity(HeadwayError):
    """No slot can be had: none is free now, or the request can never fit."""

    def __init__(self, capacity: Capacity, reason: str) -> None:
        super().__init__(capacity, reason)
        self.capacity, self.reason = capacity, reason

    def __str__(self) -> str:
        return self.reason


class CoolingDown(AtCapacity):
    """The key is left alone for longer than anyone waits; ``until`` is when that ends."""

    def __init__(self, capacity: Capacity, reason: str, until: float) -> None:
        super().__init__(capacity, reason)
        self.args = (capacity, reason, until)
        self.until = until


class QueueTimeout(HeadwayError, TimeoutError):
    """The ticket's time in the queue ran out; it never ran."""

    def __init__(self, keys: Sequence[str], timeout_seconds: float) -> None:
        super().__init__(keys, timeout_seconds)
        self.keys, self.timeout_seconds = keys, timeout_seconds

    def __str__(self) -> str:
        return (
            f"no slot on {' + '.join(self.keys)} within {self.timeout_seconds:g} s of queueing;"
            " the work was not started"
        )


class Cancelled(HeadwayError):
    """Someone cancelled the ticket while it waited; it never ran."""

    def __init__(self, keys: Sequence[str], ticket_id: str) -> None:
        super().__init__(keys, ticket_id)
        self.keys, self.ticket_id = keys, ticket_id

    def __str__(self) -> str:
        return f"ticket {self.ticket_id} on {' + '.join(self.keys)} was cancelled while it waited"


class LeaseLost(HeadwayError):
    """The store gave the slot up; it may belong to someone else now."""

    def __init__(self, keys: Sequence[str], lease_id: str, reason: str) -> None:
        super().__init__(keys, lease_id, reason)
        self.keys, self.lease_id, self.reason = keys, lease_id, reason

    def __str__(self) -> str:
        return (
            f"lease {self.lease_id} on {' + '.join(self.keys)} was lost"
            f" ({plain_text.one_line(self.reason)}); stop the work it guards"
        )


class DeadlockRefused(HeadwayError):
    """The request could never be granted: all in its way wait for its own caller, or are it.

    ``held_by`` are the leases in the way, ``circle`` says of each what it waits for; it is
    empty if all of them belong to the caller itself.
    """

    def __init__(
        self,
        key: str,
        held_by: Sequence[str],
        circle: Sequence[str] = (),
        blocks_loop: bool = False,  # noqa: FBT001, FBT002 - kept in args
    ) -> None:
        super().__init__(key, held_by, circle, blocks_loop)
        self.key, self.held_by = key, held_by
        self.circle, self.blocks_loop = circle, blocks_loop

    def __str__(self) -> str:
        never = f"waiting for {self.key!r} here would never end: "
        if self.blocks_loop:
            return (
                f"{never}a blocking slot stops this event loop, and the leases it waits for"
                f" ({', '.join(self.held_by)}) belong to tasks of this very loop."
                " Enter it with `async with`, or make the function that it is for a coroutine"
            )
        if self.circle:
            return (
                f"{never}every slot that it needs is held by a task or thread that waits itself"
                f" ({'; '.join(self.circle)})."
                ' Let the inner call run on its caller\'s slot with parent="current", release'
                " the outer one first, or raise the limit"
            )
        return (
            f"{never}the leases it waits for ({', '.join(self.held_by)}) belong to this very"
            ' caller. Pass parent="current" to go ahead on its slot, release it first'
            " (a streamed answer: read it to its end, or close it), or raise the limit"
        )


class ConfigError(HeadwayError, ValueError):
    """A setting or an argument has a value that Headway will not guess about.

    Each problem repeats the value; the middle of a very long one is left out.
    """

    def __init__(self, *problems: str) -> None:
        problems = tuple(map(shortened, problems))
        super().__init__(*problems)
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(self.problems)


class StoreUnavailable(HeadwayError):
    """The store could not be used within its time; nothing was granted."""

    def __init__(self, store: str, reason: str) -> None:
        super().__init__(store, reason)
        self.store, self.reason = store, reason

    def __str__(self) -> str:
        return f"store {self.store} is unavailable: {self.reason}"


class NotStartable(HeadwayError):
    """A command cannot be started; ``exit_code`` is what a shell would end with."""

    def __init__(self, reason: str, exit_code: int) -> None:
        reason = shortened(reason)
        super().__init__(reason, exit_code)
        self.reason, self.exit_code = reason, exit_code

    def __str__(self) -> str:
        return self.reason


def no_more_processes(error: OSError | RuntimeError) -> NotStartable:
    """What it means that the system starts no process or thread of Headway's own."""
    reason = error.strerror if isinstance(error, OSError) else error
    return NotStartable(
        f"no more processes or threads can be started ({reason});"
        " end some, or raise the limit: ulimit -u",
        126,  # as a shell answers
    )


class QueueFull(HeadwayError):
    """The board has as many jobs as it may have; this one was not kept."""

    def __init__(self, waiting: int, max_jobs: int) -> None:
        super().__init__(waiting, max_jobs)
        self.waiting, self.max_jobs = waiting, max_jobs

    def __str__(self) -> str:
        return (
            f"the job queue is full: {self.waiting} jobs wait, and queue.max_jobs is"
            f" {self.max_jobs}; try later, cancel some, or raise it"
        )


class NoSuchJob(HeadwayError):
    """There is no job with this id, or not any more."""

    def __init__(self, job: int) -> None:
        super().__init__(job)
        self.job = job

    def __str__(self) -> str:
        return f"there is no job {self.job}; see: headway jobs"
