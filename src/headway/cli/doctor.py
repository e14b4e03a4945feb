"""``headway doctor``: how the home is, and how to mend it."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from headway import config
from headway.cli import arguments, opening, output

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headway.cli.diagnosis import Finding

_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}


@click.command(name="doctor")
@click.option(
    "--repair",
    is_flag=True,
    help="First make the counts of slots agree with the leases and waiting tickets there are.",
)
@arguments.json_option
def command(*, repair: bool, as_json: bool) -> int:
    """Look at the home and say how to mend what is wrong with it.

    Looks at its place, owner and mode, the file system, the disk, the settings and
    the environment, and at processes that died; tries locks, sockets and SQLite there
    in a directory that is removed again. Changes nothing: a home that does not exist
    is not made, and nothing is given back for the dead.

    With --repair, counts of slots that no lease or waiting ticket stands for are
    corrected first, also on a server; what runs and the order of the queue stay as
    they are. On a server nothing is granted then for store.lease_seconds, while
    live processes register again.

    The exit code is 1 if there is a problem; warnings alone leave it 0.

    \b
    Example:
      headway doctor
      headway doctor --repair
      headway doctor --json
    """
    from headway.cli.checkup import Checkup  # noqa: PLC0415

    opening.refuse_off()
    home = config.home_directory()
    findings = list(_repaired(home)) if repair else []
    findings += Checkup(home).findings()
    healthy = all(finding.level != "problem" for finding in findings)
    if as_json:
        rows = [asdict(finding) for finding in findings]
        output.as_json({"healthy": healthy, "home": home, "findings": rows})
    else:
        _print(findings)
    return 0 if healthy else 1


def _repaired(home: str) -> Iterator[Finding]:
    """Make the counts agree with the tickets; what was wrong."""
    from headway import stores  # noqa: PLC0415
    from headway.cli.diagnosis import Finding  # noqa: PLC0415
    from headway.errors import HeadwayError  # noqa: PLC0415

    try:
        settings = config.load(home)
        has_counts = settings.store_url or os.path.exists(os.path.join(home, "slots.db"))
        corrections = []
        if has_counts:  # a home without any is not made
            store, _ = stores.open_store(None)
            try:
                corrections = store.repair()
            finally:
                store.close()
    except HeadwayError as error:
        fix = "mend what is told below, and repair again"
        yield Finding("problem", "repair", f"nothing was repaired: {error}", fix)
        return
    for each in corrections:
        yield Finding("ok", "repair", str(each))
    if not corrections:
        yield Finding("ok", "repair", "nothing to repair: all counts agree with the tickets")


def _print(findings: Sequence[Finding]) -> None:
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for _ in range(2):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        told = Text(output.clean(finding.text))
        if finding.fix:
            told.append(f"\n→ {output.clean(finding.fix)}", "cyan")
        table.add_row(Text(finding.level, _STYLES[finding.level]), Text(finding.about), told)
    console = output.console()
    with console.capture() as captured:
        console.print(table)
    output.drawn("\n".join(line.rstrip() for line in captured.get().splitlines()))
    output.data("")
    output.data(_verdict(findings))


def _verdict(findings: Sequence[Finding]) -> str:
    problems = sum(finding.level == "problem" for finding in findings)
    warnings = sum(finding.level == "warning" for finding in findings)
    if not problems and not warnings:
        return "All is well."
    parts = [output.count(problems, "problem"), output.count(warnings, "warning")]
    return ", ".join(part for part in parts if not part.startswith("0 ")) + "."
