"""``headway doctor``: how the home is, and how to mend it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from headway import config
from headway.cli import arguments, output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headway.cli.diagnosis import Finding

_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}


@click.command(name="doctor")
@arguments.json_option
def command(*, as_json: bool) -> int:
    """Look at the home and say how to mend what is wrong with it.

    Looks at its place, owner and mode, the file system, the disk, the settings and
    the environment, and at processes that died; tries locks, sockets and SQLite there
    in a directory that is removed again. Changes nothing: a home that does not exist
    is not made, and nothing is given back for the dead.

    The exit code is 1 if there is a problem; warnings alone leave it 0.

    \b
    Example:
      headway doctor
      headway doctor --json
    """
    from headway.cli.checkup import Checkup  # noqa: PLC0415

    home = config.home_directory()
    findings = list(Checkup(home).findings())
    healthy = all(finding.level != "problem" for finding in findings)
    if as_json:
        rows = [asdict(finding) for finding in findings]
        output.as_json({"healthy": healthy, "home": home, "findings": rows})
    else:
        _print(findings)
    return 0 if healthy else 1


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
    output.data("\n".join(line.rstrip() for line in captured.get().splitlines()))
    output.data("")
    output.data(_verdict(findings))


def _verdict(findings: Sequence[Finding]) -> str:
    problems = sum(finding.level == "problem" for finding in findings)
    warnings = sum(finding.level == "warning" for finding in findings)
    if not problems and not warnings:
        return "All is well."
    parts = [output.count(problems, "problem"), output.count(warnings, "warning")]
    return ", ".join(part for part in parts if not part.startswith("0 ")) + "."
