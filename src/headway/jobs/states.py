"""The states of a job, and how an attempt can end."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

HELD, QUEUED, RUNNING = "held", "queued", "running"
SUCCEEDED, FAILED, CANCELLED = "succeeded", "failed", "cancelled"
EXPIRED, INTERRUPTED = "expired", "interrupted"
UNFINISHED = (HELD, QUEUED, RUNNING)
FINISHED = (SUCCEEDED, FAILED, CANCELLED, EXPIRED, INTERRUPTED)
STATES = UNFINISHED + FINISHED


class Ending:
    """The one end of an attempt."""

    __slots__ = (
        "at",
        "ended_by",
        "event",
        "exit_code",
        "is_of_worker",
        "output_bytes",
        "reason",
        "state",
    )

    def __init__(
        self,
        state: str,
        reason: str | None,
        *,
        exit_code: int | None = None,
        ended_by: Mapping[str, object] | None = None,
        event: str = "",
        is_of_worker: bool = False,
    ) -> None:
        self.state, self.exit_code = state, exit_code
        # It ended with its worker, and not for a reason of its own: a retry need not be put off.
        self.is_of_worker = is_of_worker
        # Names of files in it need not be text, but the board takes nothing else.
        self.reason = reason and reason.encode(errors="backslashreplace").decode()
        # The watchdog that ended it: its name, its setting and value, the last activity.
        self.ended_by = ended_by
        # What people are told, where the state alone does not say it.
        self.event = event
        self.output_bytes = 0
        # When nothing of it was left, which is before its slot was free.
        self.at: float | None = None

    @property
    def may_run_again(self) -> bool:
        """Whether another attempt could end better."""
        return self.state in (FAILED, INTERRUPTED)
