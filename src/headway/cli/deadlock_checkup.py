"""Whether somebody waits who may do so for ever, for ``headway doctor``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway import views
from headway.cli.diagnosis import Finding
from headway.cli.finding import called

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headway.stores.base import Census
    from headway.views import WaitingView

_NAMED = 3


def findings(census: Census) -> Iterator[Finding]:
    """One for each key where that is so."""
    stuck: dict[str, list[WaitingView]] = {}
    for ticket in views.snapshot(census).waiting:
        if ticket.blocked_by.reason == "possible_deadlock":
            stuck.setdefault(ticket.blocked_by.key, []).append(ticket)
    for key, tickets in stuck.items():
        named = "; ".join(f"{called(one)}, pid {one.holder.pid}" for one in tickets[:_NAMED])
        more = f" and {len(tickets) - _NAMED} more" if len(tickets) > _NAMED else ""
        text = (
            f"a possible deadlock on {key} ({named}{more}): these may wait for ever, because those"
            " who hold it may be waiting for them"
        )
        yield Finding("warning", "queue", text, f"headway why {tickets[0].id}")
