"""``headway release``: takes a lease back by hand."""

from __future__ import annotations

import sys

import click

from headway.cli import NOT_THERE, USAGE, Failure, completing, opening, output, rows
from headway.cli.finding import GOES_ON, afterwards, called, find
from headway.views import LeaseView, WaitingView


@click.command("release")
@click.argument("name", metavar="ID", shell_complete=completing.leases)
@click.option("--force", is_flag=True, help="Do not ask. Needed where nobody can be asked.")
def command(name: str, *, force: bool) -> int:
    """Take a lease back by hand.

    Its slot goes to the next in line. The holder is told that it has lost its slot, but
    its work goes on: until that ends, more may run than the limit says. Only agents of
    the harness (`headway agent`) are ended then. A holder that died needs no release: its
    slot comes back by itself. ID is a lease's id, the beginning of one, or a task's name.
    Who did it and when is kept in releases.log in the home, and told by `headway why ID`.

    \b
    Example:
      headway release k3mx9a-1
      headway release issue-16 --force
    """
    with opening.governor() as governor:
        lease = find(governor.snapshot(), name)
        if isinstance(lease, WaitingView):
            raise Failure(
                f"{called(lease)} waits and holds nothing yet;"
                f" to end its wait: headway cancel {lease.id}",
                NOT_THERE,
            )
        if not force and not _is_wanted(lease):
            output.talk("nothing was released")
            return NOT_THERE
        if not governor.revoke(lease.id):
            raise Failure(f"{called(lease)} has just ended by itself", NOT_THERE)
    output.data(
        f"{called(lease)} released: {output.joined(lease.keys)} is free for the next in line."
        f" Its holder, {rows.process(lease.holder)}, is told; {afterwards(lease)}."
    )
    return 0


def _is_wanted(lease: LeaseView) -> bool:
    """Ask the person at the terminal; where there is none, only ``--force`` will do."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Failure("there is no terminal to ask on; add --force to take the lease back", USAGE)
    command = output.clean(lease.holder.command)
    output.talk(
        f"{called(lease)} holds {output.joined(lease.keys)} for {output.age(lease.since)}:"
        f" {rows.process(lease.holder)} ({command})"
    )
    what = afterwards(lease)
    if what == GOES_ON:
        what += " without a slot, beside whoever gets the slot next"
    output.talk(what)
    return click.confirm("Take it back?", default=False, err=True)
