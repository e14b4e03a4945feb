"""What ``submit`` returns."""

from __future__ import annotations

from headway.errors import StoreUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from headway.errors import NotStartable
    from headway.jobs.api import Jobs
    from headway.jobs.places import Standing


class Submitted:
    """A job that was kept. Its place in line is looked up when it is asked for."""

    __slots__ = ("_jobs", "_standing", "doubt", "id", "is_new", "state", "worker_error")

    def __init__(self, jobs: Jobs, id: int, state: str, *, is_new: bool) -> None:  # noqa: A002
        self._jobs, self.id, self.state = jobs, id, state
        # False if an unfinished job with the same ``dedupe`` was there before.
        self.is_new = is_new
        self._standing: Standing | Literal[False] | None = False
        # Why it is not known where it stands; it is kept all the same.
        self.doubt: StoreUnavailable | None = None
        # Why no worker could be started to run it; it is kept all the same.
        self.worker_error: NotStartable | None = None

    @property
    def position(self) -> int | None:
        """Its place in the line of the key that blocks it, from 1; none if it does not wait."""
        standing = self.standing
        return None if standing is None else standing.position

    @property
    def estimated_wait_seconds(self) -> float | None:
        """How long it may have to wait, as far as that can be told."""
        standing = self.standing
        return None if standing is None else standing.estimated_wait_seconds

    @property
    def standing(self) -> Standing | None:
        """Where it stood when that was asked for first; none if it does not wait, or in doubt."""
        if self._standing is False:
            try:
                self._standing = self._jobs.standing(self.id)
            except StoreUnavailable as error:
                self._standing, self.doubt = None, error
        return self._standing

    def __repr__(self) -> str:
        return f"<Submitted {self.id}, {self.state}>"
