"""``headway limits``: the limits as they were written, and changing them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headway import limits as terms
from headway.cli import arguments, completing, opening, output
from headway.cli.meaning import meaning, slots_in_words

if TYPE_CHECKING:
    from headway.governor import Governor
    from headway.limits import Line
    from headway.views import LimitView, Snapshot


@click.group("limits", invoke_without_command=True)
@arguments.json_option
@click.pass_context
def command(context: click.Context, *, as_json: bool) -> None:
    """Show the limits, or change one.

    A change counts at once, for everyone. Limits stand in config.toml in the home. A
    key without a line has no limit of its own, but those above it count too. In `llm/*`
    the star stands for any one name: each child of llm without a line of its own gets
    that limit.

    \b
    Example:
      headway limits
      headway limits set agent 4
      headway limits set 'llm/*' 8
    """
    if context.invoked_subcommand is not None:
        return
    with opening.governor() as governor:
        snapshot, lines = governor.snapshot(), _lines(governor)
    paused = [limit.key for limit in snapshot.limits if limit.paused]
    decided = _decided(snapshot, lines)
    if as_json:
        output.as_json(
            {
                "limits": [
                    {
                        "key": line.pattern,
                        "limit": terms.shown(line.slots),
                        "source": line.source,
                        "counts_for": [limit.key for limit in decided[line.pattern]],
                    }
                    for line in lines
                ],
                "paused": paused,
            }
        )
        return
    output.table(
        ("KEY", "LIMIT", "SOURCE", "IN USE", "WAITING"),
        [(*_line(line), *_use(line, decided[line.pattern])) for line in lines],
        right=("WAITING",),
        shortened={"KEY": output.shorten_keys, "IN USE": output.shorten_end},
    )
    if paused:
        output.data(f"\npaused: {', '.join(paused)}")


def _lines(governor: Governor) -> list[Line]:
    """The lines in force, the built-in one too where it is."""
    lines = governor.lines()
    default = terms.Terms(lines).line_for(terms.DEFAULT.pattern)
    return sorted({*lines, default}, key=lambda line: line.pattern)


def _decided(snapshot: Snapshot, lines: list[Line]) -> dict[str, list[LimitView]]:
    """The known keys whose limit each line decides."""
    in_force = terms.Terms(lines)
    decided: dict[str, list[LimitView]] = {line.pattern: [] for line in lines}
    for limit in snapshot.limits:
        decided.get(in_force.line_for(limit.key).pattern, []).append(limit)
    return decided


def _line(line: Line) -> tuple[str, str, str]:
    each = " each" if _is_pattern(line.pattern) and line.slots < terms.UNCAPPED else ""
    return line.pattern, f"{terms.shown(line.slots)}{each}", line.source


def _use(line: Line, decided: list[LimitView]) -> tuple[str, str]:
    if _is_pattern(line.pattern):
        used = ", ".join(f"{limit.key} {limit.used}" for limit in decided if limit.used)
    else:
        used = str(sum(limit.used for limit in decided))
    waiting = sum(limit.waiting for limit in decided)
    return used or "-", str(waiting) if waiting else "-"


def _is_pattern(key: str) -> bool:
    return "*" in key.split("/")


# -- changing ---------------------------------------------------------------------------


# "-1" is a bad limit, not an option.
@command.command("set", context_settings={"ignore_unknown_options": True})
@click.argument("key", callback=arguments.pattern, shell_complete=completing.patterns)
@click.argument("limit", metavar="N|unlimited", callback=arguments.limit)
def set_limit(key: str, limit: int | str) -> None:
    """Give KEY a limit.

    That is a whole number of slots, or the word unlimited. The line is written to
    config.toml (comments there survive) and counts at once, in running processes too.
    After lowering it nothing is stopped: nobody is let in until enough has ended. KEY
    may be a pattern; for each key the most specific line counts.

    \b
    Example:
      headway limits set llm/anthropic 4
      headway limits set 'llm/*' 8
      headway limits set agent/opencode unlimited
    """
    with opening.governor() as governor:
        before = _limit_of(governor, key)
        governor.set_limit(key, limit)
        output.data(
            _meaning_of_pattern(governor, key, before)
            if _is_pattern(key)
            else meaning(governor.snapshot(), governor.capacity(key), before)
        )


@command.command("unset")
@click.argument("key", callback=arguments.pattern, shell_complete=completing.limits)
def unset_limit(key: str) -> None:
    """Take the line of KEY away.

    The next less specific line counts, or the default.

    \b
    Example:
      headway limits unset llm/anthropic
    """
    with opening.governor() as governor:
        if not any(line.pattern == key for line in governor.lines()):
            output.data(f"{key} has no line to take away; {_what_counts(governor, key)}")
            return
        governor.unset_limit(key)
        output.data(f"{key}: line taken away; {_what_counts(governor, key)}")


@command.command("reload")
def reload() -> None:
    """Put config.toml in force after you have edited it.

    Running processes follow at once. Without this, an edit counts from the next opening
    of the home.

    \b
    Example:
      $EDITOR "$(headway config path)" && headway limits reload
    """
    with opening.governor() as governor:
        governor.reload()
        lines, paused = _lines(governor), [x for x in governor.snapshot().limits if x.paused]
    output.data(f"{_summary(lines, len(paused))} in force; see: headway limits")


def _summary(lines: list[Line], paused: int) -> str:
    default = terms.DEFAULT in lines
    written = len(lines) - default
    parts = [output.count(written, "limit")] if written else []
    if default:
        only = "" if written else "only "
        parts.append(f"{only}the default ({terms.DEFAULT.pattern} {terms.DEFAULT.slots})")
    if paused:
        parts.append(output.count(paused, "pause"))
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _limit_of(governor: Governor, key: str) -> int | str | None:
    """What counts for a key now; for a pattern, what its own line says."""
    if not _is_pattern(key):
        return governor.capacity(key).limit
    line = next((line for line in governor.lines() if line.pattern == key), None)
    return None if line is None else terms.shown(line.slots)


def _meaning_of_pattern(governor: Governor, key: str, before: int | str | None) -> str:
    lines = governor.lines()
    line = next(line for line in lines if line.pattern == key)
    keys = [limit.key for limit in _decided(governor.snapshot(), lines)[key]]
    was = "" if before is None else f" (was {before})"
    counts = f"counts for {', '.join(keys)}" if keys else "counts for no key so far"
    each = "" if line.slots >= terms.UNCAPPED else " each"
    return f"{key}: {slots_in_words(terms.shown(line.slots))}{each}{was}; {counts}"


def _what_counts(governor: Governor, key: str) -> str:
    if _is_pattern(key):
        return "keys it stood for have what other lines say"
    line = terms.Terms(governor.lines()).line_for(key)
    now = slots_in_words(terms.shown(line.slots))
    if line is terms.DEFAULT:
        return f"the default counts: {now}"
    return f"{line.pattern} counts: {now}" if line.pattern else "it has no limit of its own"
