from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING, Any

import pytest

from headway import events, telling
from headway.views import BlockedBy, HolderView, LeaseView

if TYPE_CHECKING:
    from headway.events import Event

WHAT: dict[str, Any] = {"ticket_id": "abc-1", "task": "issue-16", "keys": ("a", "b"), "at": 1.0}
HOLDERS = tuple(
    LeaseView(f"abc-{n}", None, ("a",), 1, 0.0, HolderView(40 + n, "host", "command"))
    for n in range(6)
)
LINES: list[tuple[Event, str]] = [
    (
        events.Queued(
            **WHAT,
            position=3,
            blocked_by=BlockedBy("a", "full"),
            holders=HOLDERS,
            estimated_wait_seconds=12.4,
        ),
        (
            "queued abc-1 (issue-16) on a + b: position 3, a is full, about 12 s,"
            " held by abc-0 (pid 40), abc-1 (pid 41), abc-2 (pid 42), abc-3 (pid 43) and 2 more"
        ),
    ),
    (
        events.Queued(
            **{**WHAT, "task": None},
            position=1,
            blocked_by=BlockedBy("a", "paused"),
            holders=(),
            estimated_wait_seconds=None,
        ),
        "queued abc-1 on a + b: position 1, a is paused",
    ),
    (
        events.MovedUp(**WHAT, position=2, estimated_wait_seconds=None),
        "moved up abc-1 (issue-16) on a + b: position 2",
    ),
    (
        events.Granted(**WHAT, waited_seconds=0.5),
        "granted abc-1 (issue-16) on a + b after 0.500 s",
    ),
    (
        events.Released(**WHAT, held_seconds=2),
        "released abc-1 (issue-16) on a + b after 2.000 s",
    ),
    (events.Cancelled(**WHAT), "cancelled abc-1 (issue-16) on a + b"),
    (
        events.TimedOut(**WHAT, timeout_seconds=600),
        "timed out abc-1 (issue-16) on a + b after 600 s in the queue",
    ),
    (events.Refused(**WHAT, reason="no"), "refused abc-1 (issue-16) on a + b: no"),
    (events.Lost(**WHAT, reason="by hand"), "lost abc-1 (issue-16) on a + b: by hand"),
    (
        events.Reclaimed(**WHAT, holder="pid 7"),
        "reclaimed abc-1 (issue-16) on a + b from pid 7, which is gone",
    ),
]


@pytest.mark.parametrize(("event", "line"), LINES, ids=lambda part: getattr(part, "kind", ""))
def test_an_event_reads_as_one_line_at_its_level(
    event: Event, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says what, who and where."""
    caplog.set_level(logging.DEBUG, "headway")

    events.log(event)

    assert [(record.message, record.levelno) for record in caplog.records] == [(line, event.level)]


@pytest.mark.parametrize("event", [event for event, _ in LINES], ids=lambda event: event.kind)
def test_an_event_is_frozen(event: Event) -> None:
    """What happened cannot be changed."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.task = "other"  # type: ignore[misc]


def test_losses_are_warnings_and_grants_are_for_debugging() -> None:
    """Levels let people choose."""
    levels = {type(event).__name__: event.level for event, _ in LINES}

    assert levels == {
        "Queued": logging.INFO,
        "MovedUp": logging.INFO,
        "Granted": logging.DEBUG,
        "Released": logging.DEBUG,
        "Cancelled": logging.INFO,
        "TimedOut": logging.INFO,
        "Refused": logging.INFO,
        "Lost": logging.ERROR,
        "Reclaimed": logging.WARNING,
    }


def test_nothing_is_written_below_the_level_of_the_logger(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Who does not want grants gets none."""
    caplog.set_level(logging.WARNING, "headway")

    for event, _ in LINES:
        events.log(event)

    assert [record.message.split()[0] for record in caplog.records] == ["lost", "reclaimed"]


def test_labels_and_commands_of_others_are_one_line_of_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An escape sequence or a line break in a task or a command fakes nothing in a log."""
    caplog.set_level(logging.DEBUG, "headway")
    hostile = "\x1b]0;PWNED\x07\x9b2J\u202e\nreclaimed nothing, all is well"
    what = {**WHAT, "task": hostile}
    lease = LeaseView("abc-1", hostile, ("a",), 1, 0.0, HolderView(42, "host", hostile))

    events.log(
        events.Queued(
            **what,
            position=1,
            blocked_by=BlockedBy("a", "full"),
            holders=(lease,),
            estimated_wait_seconds=None,
        )
    )
    events.log(events.Reclaimed(**what, holder=f"pid 42 ({hostile})"))
    events.log(events.Lost(**what, reason=hostile))
    telling.warn(f"something about {hostile}")

    assert [record.getMessage().isprintable() for record in caplog.records] == [True] * 4
    assert all("PWNED" in record.getMessage() for record in caplog.records)


def test_a_hook_that_raises_is_logged_with_the_event(caplog: pytest.LogCaptureFixture) -> None:
    """And goes no further."""

    def broken(_: Event) -> None:
        raise ZeroDivisionError

    events.call(broken, LINES[0][0])

    (record,) = caplog.records
    assert "abc-1" in record.message
    assert record.exc_info is not None


def test_an_interrupt_in_a_hook_is_an_interrupt() -> None:
    """Ctrl-C is not swallowed."""

    def interrupted(_: Event) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        events.call(interrupted, LINES[0][0])
