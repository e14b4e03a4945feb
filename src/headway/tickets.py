"""Tickets, and what can become of one."""

from __future__ import annotations

from headway.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _weakref import ref
    from collections.abc import Callable, Iterable
    from typing import Literal, TypeAlias

    from headway.callers import Caller
    from headway.slot import Lease

    Refusal: TypeAlias = Literal[
        "full", "paused", "cooling", "budget", "too_heavy", "queue_full", "deadlock", "settling"
    ]

# Words among the ids of leases that a ticket waits inside of; no id begins with either.
AROUND, TIMED = "~", "!"
MAX_WEIGHT = 1_000_000
MAX_PRIORITY = 100
MAX_TASK_LENGTH = 1000


def check_task(task: object) -> str:
    """The caller's label, if it is one."""
    if isinstance(task, str) and 0 < len(task) <= MAX_TASK_LENGTH:
        try:
            task.encode()
        except UnicodeEncodeError:
            pass
        else:
            return task
    raise ConfigError(f"task must be a label of 1 to {MAX_TASK_LENGTH} characters, got {task!r}")


def check_weight(weight: object) -> int:
    """How many slots a ticket takes of each key, if it can be that many."""
    return check_whole("weight", weight, 1, MAX_WEIGHT)


def check_priority(priority: object) -> int:
    """A head start or a handicap, if it is one."""
    return check_whole("priority", priority, -MAX_PRIORITY, MAX_PRIORITY)


def check_whole(name: str, value: object, least: int, most: int) -> int:
    """A whole number, neither a float nor True."""
    if value.__class__ is not int or not least <= value <= most:
        raise ConfigError(f"{name} must be a whole number from {least} to {most}, got {value!r}")
    return value


def job_name(job: int) -> str:
    """What the id of a job's ticket ends in, for people and for those who look for it."""
    return f"job{job}"


def job_of(ticket_id: str) -> int | None:
    """The job that a ticket is for, if it is for one."""
    number = ticket_id.rpartition("-")[2].removeprefix("job")
    return int(number) if ticket_id.endswith(f"job{number}") and number.isdecimal() else None


class Ticket:
    """One request for slots, from asking until it is released.

    ``keys`` is what the caller named, ``path`` what counts: those keys and all
    their ancestors in collection order. ``parents`` are the leases whose slots it may
    borrow, the nearest first. The store fills in the rest: ``rank``
    (its place in every line it stands in), ``at`` (the one key it waits at),
    ``reserved`` and ``borrowed`` (what it has collected so far), and ``verdict``
    once somebody else has ended it. ``ended`` means that its caller has given it back,
    ``lease`` refers to what its caller got, ``caller`` is the task or thread that asked, and
    ``user`` tells, if it was handed to another one, whether that is the present one.

    ``within`` are the leases of the very task or thread that asks, which cannot end while it
    waits; ``around`` those of whoever started it, which may. It is ``timed`` if it gives up
    by itself.
    """

    __slots__ = (
        "around",
        "arrival",
        "at",
        "borrowed",
        "caller",
        "ended",
        "id",
        "keys",
        "lease",
        "parents",
        "path",
        "priority",
        "rank",
        "reserved",
        "since",
        "task",
        "timed",
        "token",
        "user",
        "verdict",
        "weight",
        "within",
    )

    def __init__(  # noqa: PLR0917 - made for every request
        self,
        id: str,  # noqa: A002 - the public word for it
        keys: tuple[str, ...],
        path: tuple[str, ...],
        task: str | None = None,
        weight: int = 1,
        priority: int = 0,
        parents: tuple[str, ...] = (),
        within: tuple[str, ...] = (),
        around: tuple[str, ...] = (),
        timed: bool = False,  # noqa: FBT001, FBT002
    ) -> None:
        self.id, self.keys, self.path = id, keys, path
        self.task, self.weight, self.priority = task, weight, priority
        self.parents, self.within = parents, within
        self.around, self.timed = around, timed
        self.arrival = self.rank = self.token = 0
        self.since = 0.0
        self.at: str | None = None
        self.reserved: list[str] = []
        self.borrowed: dict[str, str] = {}
        self.verdict: Decision | None = None
        self.user: Callable[[], bool] | None = None
        self.caller: Caller | None = None
        self.lease: ref[Lease] | None = None
        self.ended = False

    @property
    def is_decided(self) -> bool:
        """Whether it waits or holds: it was asked for, and nobody has ended it."""
        return self.verdict is None and (self.at is not None or self.token != 0)

    def copy(self) -> Ticket:
        """The same request at the same place in line, with nothing collected."""
        copied = Ticket(
            self.id,
            self.keys,
            self.path,
            task=self.task,
            weight=self.weight,
            priority=self.priority,
            parents=self.parents,
            within=self.within,
            around=self.around,
            timed=self.timed,
        )
        copied.arrival, copied.rank, copied.since = self.arrival, self.rank, self.since
        return copied

    @property
    def surroundings(self) -> tuple[str, ...]:
        """What it waits inside of, in words that stores keep: the leases, and whether timed."""
        if not self.around and not self.timed:
            return self.within
        around = [AROUND + lease for lease in self.around]
        return (*self.within, *around, *((TIMED,) if self.timed else ()))

    @surroundings.setter
    def surroundings(self, words: Iterable[str]) -> None:
        within, around = [], []
        for word in words:
            if word == TIMED:
                self.timed = True
            elif word.startswith(AROUND):
                around.append(word[len(AROUND) :])
            else:
                within.append(word)
        self.within, self.around = tuple(within), tuple(around)

    def clear(self) -> None:
        """Forget the place that a failed attempt gave it."""
        self.at, self.token = None, 0
        self.reserved.clear()
        self.borrowed.clear()

    @property
    def holder(self) -> str:
        """The holder it belongs to: the first part of its id."""
        return self.id.partition("-")[0]

    @property
    def place(self) -> tuple[int, str]:
        """What lines are sorted by; the id only makes it total."""
        return self.rank, self.id


class Granted:
    """The ticket is a lease now."""

    __slots__ = ("ticket_id", "token")

    def __init__(self, ticket_id: str, token: int) -> None:
        self.ticket_id, self.token = ticket_id, token


class Waiting:
    """The ticket stands in line."""

    __slots__ = ("ticket_id",)

    def __init__(self, ticket_id: str) -> None:
        self.ticket_id = ticket_id


class Refused:
    """The ticket cannot be granted, now or ever; ``key`` is the one that says no."""

    __slots__ = ("held_by", "key", "reason", "ticket_id")

    def __init__(
        self, ticket_id: str, reason: Refusal, key: str, held_by: tuple[str, ...] = ()
    ) -> None:
        self.ticket_id, self.reason, self.key, self.held_by = ticket_id, reason, key, held_by


class Withdrawn:
    """The ticket waited and was taken out of line."""

    __slots__ = ("ticket_id",)

    def __init__(self, ticket_id: str) -> None:
        self.ticket_id = ticket_id


class Revoked:
    """The lease was taken back from its holder.

    ``token`` is that of the lease if the store took the holder for dead; 0 if it was taken by hand.
    """

    __slots__ = ("reason", "ticket_id", "token")

    def __init__(self, ticket_id: str, reason: str, token: int = 0) -> None:
        self.ticket_id, self.reason, self.token = ticket_id, reason, token


if TYPE_CHECKING:
    Answer: TypeAlias = Granted | Waiting | Refused
    Decision: TypeAlias = Granted | Refused | Withdrawn | Revoked
