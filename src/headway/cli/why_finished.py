"""``headway why`` of a command that has ended under ``headway run``."""

from __future__ import annotations

from headway import config, finished
from headway.cli import output
from headway.finished import Finished

_MOST_SIGNALS = 65


def look_up(name: str) -> Finished | None:
    """The last one of that id, task, or beginning of an id that is on record."""
    on_record = finished.read(config.home_directory())
    fits = (
        [one for one in on_record if one.id == name]
        or [one for one in on_record if one.task == name]
        or [one for one in on_record if one.id.startswith(name)]
    )
    return fits[0] if fits else None


def show(over: Finished, *, as_json: bool) -> None:
    """Tell how it ended, and when."""
    command = over.command.removeprefix("headway run ")
    if as_json:
        facts = {name: getattr(over, name) for name in Finished.__slots__}
        output.as_json({"state": "finished", "run": {**facts, "command": command}})
        return
    ended_at = over.since + over.held_seconds
    name = f"{over.id} ({output.clean(over.task)})" if over.task else over.id
    signum = over.code - 128
    by_signal = f" (signal {signum})" if 0 < signum < _MOST_SIGNALS else ""
    output.data(
        f"{name} has ended; it held {output.joined(over.keys)}.\n"
        f"  command    {output.clean(command)}\n"
        f"  exit code  {over.code}{by_signal}\n"
        f"  ran        {output.length(over.held_seconds)}, from {output.clock(over.since)}\n"
        f"  ended      {output.age(ended_at)} ago ({output.clock(ended_at)})"
    )
