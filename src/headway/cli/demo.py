"""``headway demo``: a tour without any LLM."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import click

from headway.cli import SOFTWARE, Failure, output

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType

    from rich.console import Console
    from rich.text import Text

    from headway.cli.story import Agent, Story

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FRAME_SECONDS = 0.08
_FAST = 0.12
_NEXT = (
    ('headway run -- opencode run "fix issue 16"', "run it when a slot is free"),
    ('headway submit -- opencode run "fix issue 16"', "queue it in the background"),
    ("headway top", "see what runs and waits"),
    ("headway limits set agent 4", "change a limit, live"),
)


@click.command(name="demo")
@click.option("--fast", is_flag=True, help="The same in a few seconds.")
def command(*, fast: bool) -> int:
    """Watch scripted agents share three slots.

    No LLM, no network, and nothing touches your own home. One of eight agents is
    killed half-way, and its slot goes to the next in line. Then five jobs are
    submitted and their worker is killed; the next one finishes them. What the end says
    is measured and checked; the exit code is not 0 if anything was not as promised.

    \b
    Example:
      headway demo
    """
    from headway.cli import claims  # noqa: PLC0415
    from headway.cli.screen import follow_window  # noqa: PLC0415
    from headway.cli.second_act import SecondAct  # noqa: PLC0415
    from headway.cli.story import Story  # noqa: PLC0415

    follow_window()
    for number in _ENDING:
        signal.signal(number, _end)
    console = output.console()
    with Story(pace=_FAST if fast else 1.0) as story:
        if console.is_terminal and not console.is_dumb_terminal:
            _show(story, console)
        else:
            _tell(story)
        story.finish()
        problems = claims.broken(story.agents, story.look.snapshot)
        if problems:
            raise Failure("the demo did not go as promised: " + "; ".join(problems), SOFTWARE)
        for line in _measured(_figures(story)):
            console.print(line, soft_wrap=True)
    output.data("")
    with SecondAct(output.data, pace=_FAST if fast else 1.0) as act:
        act.play()
        problems = act.broken()
        if problems:
            raise Failure("the demo did not go as promised: " + "; ".join(problems), SOFTWARE)
        for line in (*_measured(act.summary()), *_next()):
            console.print(line, soft_wrap=True)
    return 0


def _end(number: int, _: FrameType | None) -> None:
    """End once: a second signal must not find the cleaning up half done."""
    for other in _ENDING:
        signal.signal(other, signal.SIG_IGN)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


def _show(story: Story, console: Console) -> None:
    from rich.live import Live  # noqa: PLC0415

    from headway.cli import lanes  # noqa: PLC0415

    first = lanes.frame(story, console.size.width)
    with Live(first, console=console, auto_refresh=False) as live:
        while not story.is_over:
            story.go_on(_FRAME_SECONDS)
            live.update(lanes.frame(story, console.size.width), refresh=True)


def _tell(story: Story) -> None:
    """The same in plain lines, for those without a terminal."""
    output.data("eight agents, three slots; no LLM, no network")
    told: set[tuple[str, str]] = set()
    while not story.is_over:
        story.go_on(_FRAME_SECONDS)
        for agent in story.agents:
            for what, line in _news(story, agent):
                if (agent.task, what) not in told:
                    told.add((agent.task, what))
                    output.data(f"{story.seconds:5.1f} s  {agent.task}  {line}")


def _news(story: Story, agent: Agent) -> Iterator[tuple[str, str]]:
    if agent.place:
        yield "waits", f"waits, number {agent.place} in line"
    if agent.granted_at is not None:
        gap = story.gap_seconds
        on_its_slot = gap is not None and story.heir is agent
        after = f", {(gap or 0) * 1000:.0f} ms after the kill" if on_its_slot else ""
        yield "runs", f"has a slot{after}"
    if agent.killed_at is not None:
        yield "killed", f"is killed with -9 while {agent.doing}"
    elif agent.ended_at is not None:
        yield "done", "is done"


def _figures(story: Story) -> list[tuple[str, str]]:
    from headway.cli.claims import peak  # noqa: PLC0415
    from headway.cli.story import SLOTS  # noqa: PLC0415

    heir, gap = story.heir, story.gap_seconds
    assert heir is not None
    assert gap is not None
    return [
        (f"{peak(story.agents)} at once", f"at most, and {SLOTS} is the limit"),
        (
            f"{gap * 1000:.0f} ms",
            f"from kill -9 of {story.victim.task} until {heir.task} had its slot",
        ),
        (f"{len(story.agents)} of {len(story.agents)}", "served in the order in which they asked"),
    ]


def _measured(figures: Iterable[tuple[str, str]]) -> Iterator[Text]:
    from rich.text import Text  # noqa: PLC0415

    yield Text("")
    yield Text("Measured just now", "bold")
    for figure, meaning in figures:
        yield Text.assemble("  ", (f"{figure:<10}", "green"), f"  {meaning}")


def _next() -> Iterator[Text]:
    from rich.text import Text  # noqa: PLC0415

    yield Text("")
    yield Text("Now with your own agents", "bold")
    width = max(len(words) for words, _ in _NEXT)
    for words, meaning in _NEXT:
        yield Text.assemble("  ", (f"{words:<{width}}", "cyan"), (f"  {meaning}", "bright_black"))
