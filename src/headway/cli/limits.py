"""``headway limits``: the limits as they were written, and changing them."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from headway import keys
from headway import limits as terms
from headway.cli import arguments, completing, opening, output, rows
from headway.cli.meaning import in_words, meaning
from headway.errors import ConfigError

if TYPE_CHECKING:
    from headway.cli.meaning import Parts
    from headway.governor import Governor
    from headway.limits import Limit, Line
    from headway.views import LimitView, Snapshot


class _Limits(click.Group):
    """Knows what people type when they mean `limits set`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None and not ctx.resilient_parsing:
            raise click.UsageError(f"There is no command {args[0]!r}.{_hint(args)}", ctx)
        return super().resolve_command(ctx, args)


def _hint(words: list[str]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only when something is wrong

    near = get_close_matches(words[0], ("set", "unset", "reload"), n=1)
    if near:
        return f" Did you mean {near[0]}?"
    key, *amounts = words[0].split("=", 1) + words[1:]
    try:
        keys.check(key, pattern=True)
    except ConfigError:
        return ""
    if amounts:
        return f" To set a limit: headway limits set {shlex.join([key, *amounts])}"
    return f" To see its limit: headway status {shlex.quote(key)}"


@click.group("limits", cls=_Limits, invoke_without_command=True)
@arguments.json_option
@click.pass_context
def command(context: click.Context, *, as_json: bool) -> None:
    """Show the limits, or change one.

    A change counts at once, for everyone. Limits stand in config.toml in the home, or on
    the server that many machines share. A key without a line has no limit of its own,
    but those above it count too. In `llm/*` the star stands for any one name: each child
    of llm without a line of its own gets that limit. REQ/MIN is there if a line has a
    budget of requests a minute. What a line does not mention (-) is decided by the next
    less specific one.

    \b
    Example:
      headway limits
      headway limits set agent 4
      headway limits set 'llm/*' 8
      headway limits set llm/openai --requests-per-minute 60
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
                        "limit": line.parts().get("slots"),
                        "requests_per_minute": line.parts().get("requests_per_minute"),
                        "source": line.source,
                        "counts_for": [limit.key for limit in decided[line.pattern]],
                    }
                    for line in lines
                ],
                "paused": paused,
            }
        )
        return
    with_budget = any(line.requests_per_minute is not None for line in lines)
    uses = [_use(line, decided[line.pattern]) for line in lines]
    rows.show_columns(
        {
            "KEY": [line.pattern for line in lines],
            "LIMIT": [_part(line, "slots") for line in lines],
            "REQ/MIN": [_part(line, "requests_per_minute") for line in lines]
            if with_budget
            else None,
            "SOURCE": [line.source for line in lines],
            "IN USE": [used for used, _ in uses],
            "WAITING": [waiting for _, waiting in uses],
        }
    )
    if paused:
        output.data(f"\npaused: {', '.join(paused)}")


def _lines(governor: Governor) -> list[Line]:
    """The lines in force, the built-in one too where it is."""
    lines = governor.lines()
    default = terms.Terms(lines).line_for(terms.DEFAULT.pattern)
    return sorted({*lines, default}, key=lambda line: line.pattern)


def _decided(snapshot: Snapshot, lines: list[Line]) -> dict[str, list[LimitView]]:
    """The known keys whose slots or budget each line decides."""
    in_force = terms.Terms(lines)
    decided: dict[str, list[LimitView]] = {line.pattern: [] for line in lines}
    for limit in snapshot.limits:
        deciding = {in_force.line_for(limit.key), in_force.budget_line_for(limit.key)}
        for line in deciding:
            decided.get(line.pattern, []).append(limit)
    return decided


def _part(line: Line, name: str) -> str:
    value = line.parts().get(name)
    if not isinstance(value, int):
        return "-" if value is None else value
    return f"{value}{' each' if _is_pattern(line.pattern) else ''}"


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
@click.argument("slots", metavar="[N|unlimited]", required=False, callback=arguments.slots)
@click.option(
    "--requests-per-minute",
    metavar="R|unlimited",
    callback=arguments.budget,
    help="How many may be let in within any minute; for keys under llm.",
)
def set_limit(key: str, slots: int | str | None, requests_per_minute: int | str | None) -> None:
    """Give KEY a limit: slots, a budget of requests, or both.

    Slots are a whole number, or the word unlimited. So is the budget: whoever is let in
    has used one request, on KEY and on all keys above it, and that counts for a minute.
    What is not given stays as it is. The line is written to config.toml (comments there
    survive), or to the server that many machines share, and counts at once, in running
    processes too. After lowering it nothing is stopped: nobody is let in until enough has
    ended. KEY may be a pattern; for each key the most specific line counts.

    \b
    Example:
      headway limits set llm/anthropic 4
      headway limits set 'llm/*' 8
      headway limits set agent/opencode unlimited
      headway limits set llm/openai --requests-per-minute 60
    """
    wanted = _wanted(key, slots, requests_per_minute)
    with opening.governor() as governor:
        before = _limit_of(governor, key)
        governor.set_limit(key, wanted)
        output.data(
            _meaning_of_pattern(governor, key, before)
            if _is_pattern(key)
            else meaning(governor.snapshot(), governor.capacity(key), before)
        )


def _wanted(key: str, slots: int | str | None, requests: int | str | None) -> Limit:
    """What was given; that it is nothing, or does not fit the key, is bad usage."""
    given = {"slots": slots, "requests_per_minute": requests}
    wanted = {name: value for name, value in given.items() if value is not None}
    if not wanted:
        raise click.UsageError("Give a number of slots, --requests-per-minute, or both.")
    try:
        terms.line(key, wanted, source=terms.FILE, where=key)
    except ConfigError as error:
        raise click.BadParameter(str(error), param_hint="'--requests-per-minute'") from error
    return wanted


@command.command("unset")
@click.argument("key", callback=arguments.pattern, shell_complete=completing.limits)
def unset_limit(key: str) -> None:
    """Take the line of KEY away, slots and budget.

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
    # As whoever comes next finds it: the file of a home may offer a line to a server again.
    with opening.governor() as governor:
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


def _limit_of(governor: Governor, key: str) -> Parts:
    """What counts for a key now; for a pattern, what its own line says."""
    in_force = terms.Terms(governor.lines())
    if not _is_pattern(key):
        return {
            "slots": terms.shown(in_force.cap(key)),
            "requests_per_minute": terms.shown(in_force.budget(key)),
        }
    line = in_force.exact(key)
    return {} if line is None else line.parts()


def _meaning_of_pattern(governor: Governor, key: str, before: Parts) -> str:
    lines = governor.lines()
    line = next(line for line in lines if line.pattern == key)
    decided = [limit.key for limit in _decided(governor.snapshot(), lines)[key]]
    counts = f"counts for {', '.join(decided)}" if decided else "counts for no key so far"
    return f"{key}: {in_words(line.parts(), before, each=True)}; {counts}"


def _what_counts(governor: Governor, key: str) -> str:
    if _is_pattern(key):
        return "keys it stood for have what other lines say"
    in_force = terms.Terms(governor.lines())
    deciding: dict[str, dict[str, int | str]] = {}
    for name, line in (
        ("slots", in_force.line_for(key)),
        ("requests_per_minute", in_force.budget_line_for(key)),
    ):
        if line.pattern:
            source = "the default" if line is terms.DEFAULT else line.pattern
            deciding.setdefault(source, {})[name] = line.parts()[name]
    said = [f"{source} counts: {in_words(parts)}" for source, parts in deciding.items()]
    return "; ".join(said) or "it has no limit of its own"
