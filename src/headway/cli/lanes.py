"""Draws the demo: a lane per agent in which time runs to the right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from headway.cli import board
from headway.cli.claims import peak
from headway.cli.story import KEY, LIMITED, SLOTS

if TYPE_CHECKING:
    from rich.console import RenderableType

    from headway.cli.story import Agent, Story

_QUIET = "bright_black"
_LABEL_COLUMNS, _STATE_COLUMNS, _NARROWEST = 8, 25, 8
_EVENTS = 3
_ORDINALS = {1: "1st", 2: "2nd", 3: "3rd"}


def frame(story: Story, columns: int) -> RenderableType:
    """The whole picture at this moment."""
    events = board.events_section([e for e in story.look.events if e.kind != "limit"])
    events.room = _EVENTS
    drawn = events.draw()
    missing = _EVENTS - min(_EVENTS, events.wanted)
    return Group(
        _title(columns),
        Text(""),
        _bar(story, columns),
        Text(""),
        *(_lane(story, agent, columns) for agent in story.agents),
        Text(""),
        caption(story),
        Text(""),
        drawn,
        *[Text("")] * missing,
    )


def _title(columns: int) -> Text:
    left, right = "headway demo", "eight agents · three slots · no LLM, no network"
    gap = max(2, columns - len(left) - len(right))
    return Text.assemble(
        (left, "bold"), " " * gap, (right, _QUIET), no_wrap=True, overflow="ellipsis"
    )


def _bar(story: Story, columns: int) -> Text:
    line = next(line for line in story.look.snapshot.limits if line.key == LIMITED)
    waiting = f", {line.waiting} waiting" if line.waiting else ""
    return Text.assemble(
        (f"{line.key:<{_LABEL_COLUMNS}}  ", "bold"),
        board.bar(line, _room(columns)),
        f"  {line.used} of {line.limit} in use",
        (waiting, "yellow"),
        no_wrap=True,
        overflow="ellipsis",
    )


def _room(columns: int) -> int:
    """What a lane has for itself."""
    return max(_NARROWEST, columns - _LABEL_COLUMNS - _STATE_COLUMNS - 4)


def _lane(story: Story, agent: Agent, columns: int) -> Text:
    text, style = _state(story, agent)
    return Text.assemble(
        (f"{agent.task:<{_LABEL_COLUMNS}}  ", "" if agent.is_running else _QUIET),
        _track(story, agent, _room(columns)),
        "  ",
        (text, style),
        no_wrap=True,
        overflow="ellipsis",
    )


def _track(story: Story, agent: Agent, room: int) -> Text:
    """Dots while it waits, a line while it runs, a mark where it ends."""
    scale = (room - 1) / max(story.expected_seconds, story.seconds)

    def column(moment: float | None, otherwise: float) -> int:
        at = otherwise if moment is None else moment - story.began_at
        return round(at * scale)

    now = story.seconds
    if agent.asked_at is None:
        return Text(" " * room)
    asked = column(agent.asked_at, now)
    began = max(asked, column(agent.granted_at, now))
    over = max(began, column(agent.over_at, now))
    if agent.killed_at is not None:
        style, mark = "red", ("✗", "bold red")
    elif agent.ended_at is not None:
        style, mark = _QUIET, ("╸", _QUIET)
    elif agent.granted_at is not None:
        style, mark = "green", ("╸", "bold green")
    else:
        style, mark = "", ("·", "yellow")
    track = Text.assemble(
        " " * asked, ("·" * (began - asked), "yellow"), ("━" * (over - began), style), mark
    )
    track.pad_right(room - track.cell_len)
    return track


def _state(story: Story, agent: Agent) -> tuple[str, str]:
    if agent.killed_at is not None:
        return "killed with -9", "red"
    if agent.ended_at is not None:
        return "done", _QUIET
    if agent.is_running:
        return agent.doing, "green"
    if agent.place:
        line = story.look.snapshot.waiting
        about = next((t.estimated_wait_seconds for t in line if t.task == agent.task), None)
        soon = "" if about is None else f", about {max(1.0, about):.0f} s"
        place = _ORDINALS.get(agent.place, f"{agent.place}th")
        return f"{place} in line{soon}", "yellow"
    return ("starting", "green") if agent.asked_at is not None else ("", "")


def caption(story: Story) -> Text:
    """What there is to see at this moment."""
    victim, heir = story.victim, story.heir
    if any(agent.asked_at is None for agent in story.agents):
        return Text(f"They arrive, and each asks for a slot on {KEY}.")
    if victim.killed_at is None:
        return Text(f"{SLOTS} run. The others wait, in the order in which they asked.")
    if heir is None or story.gap_seconds is None:
        return Text.assemble(("kill -9 ", "bold red"), f"{victim.task}: nobody gives back for it.")
    if any(agent.code is None for agent in story.agents):
        return Text.assemble(
            ("kill -9 ", "bold red"),
            f"{victim.task}: {story.gap_seconds * 1000:.0f} ms later {heir.task} has its slot.",
        )
    return Text(f"All served, never more than {peak(story.agents)} at once.")
