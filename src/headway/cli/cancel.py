"""``headway cancel``: ends waiting tickets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headway.cli import Failure, completing, opening, output
from headway.cli.finding import NOT_THERE, called, find

if TYPE_CHECKING:
    from headway.governor import Governor


@click.command("cancel")
@click.argument(
    "names", metavar="ID...", nargs=-1, required=True, shell_complete=completing.tickets
)
def command(names: tuple[str, ...]) -> int:
    """End tickets that wait.

    Everyone behind them moves up. ID is a ticket's id, the beginning of one, or a
    task's name. Who waited is told, and `headway run` ends with code 125. What runs
    already is left alone: see `headway release`. The exit code is 1 if one of them
    could not be cancelled.

    \b
    Example:
      headway cancel issue-16
      headway cancel k3mx9a-1 k3mx9a-2
    """
    code = 0
    with opening.governor() as governor:
        for name in names:
            try:
                output.data(_cancel(governor, name))
            except Failure as failure:
                output.talk(failure.message)
                code = failure.code
    return code


def _cancel(governor: Governor, name: str) -> str:
    from headway.views import WaitingView  # noqa: PLC0415

    found = find(governor.snapshot(), name)
    if not isinstance(found, WaitingView):
        raise Failure(
            f"{called(found)} runs, so there is no wait to cancel;"
            f" to take its slot back: headway release {found.id}",
            NOT_THERE,
        )
    if not governor.cancel(found.id):
        raise Failure(f"{called(found)} has just stopped waiting", NOT_THERE)
    waited = output.age(found.since)
    return f"{called(found)} cancelled; it waited {waited} for {output.joined(found.keys)}"
