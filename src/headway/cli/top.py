"""``headway top``: everything that runs and waits, live."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import click

from headway import config, durations
from headway.cli import opening, output, picture
from headway.errors import ConfigError
from headway.stores import place_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from headway.cli.screen import Screen
    from headway.cli.watching import Look, Lookout
    from headway.governor import Governor
    from headway.views import WaitingView

# The lookout has something new to show every second; a stuck one has not.
_AGE_SECONDS = 2.0
_SHORTEST_SECONDS = 0.05
# Where nobody gives us a width, as narrow as the narrowest terminal we care for.
_PLAIN_COLUMNS = 80


def _interval(_: click.Context, __: click.Parameter, text: str) -> float:
    try:
        seconds = durations.from_text(text, name="it")
    except ConfigError as error:
        raise click.BadParameter(str(error)) from error
    if seconds < _SHORTEST_SECONDS:
        raise click.BadParameter(f"the shortest is {_SHORTEST_SECONDS * 1000:.0f}ms, got {text!r}")
    return seconds


@click.command(name="top")
@click.option(
    "--interval",
    callback=_interval,
    default="250ms",
    show_default=True,
    metavar="DURATION",
    help="How often to look whether something changed.",
)
def command(interval: float) -> int:
    """Show what runs and what waits, live.

    Bars for every key, the leases, the line, and what happened last, in all
    processes of the home. Choose a waiting ticket with the arrow keys, press c to
    cancel it, q to quit and ? for help.

    \b
    Example:
      headway top
      headway top --interval 2s
    """
    from headway.cli.screen import follow_window  # noqa: PLC0415

    follow_window()
    console = output.console()
    with opening.governor() as governor:
        if not console.is_terminal or console.is_dumb_terminal:
            _print_once(governor)
            return 0
        _watch(governor, console, interval)
    return 0


def _print_once(governor: Governor) -> None:
    from rich.console import Console  # noqa: PLC0415

    from headway.cli import board  # noqa: PLC0415
    from headway.cli.watching import Look  # noqa: PLC0415

    columns = int(os.environ.get("COLUMNS", "0") or 0) or _PLAIN_COLUMNS
    plain = Console(width=columns, color_system=None, highlight=False)
    with plain.capture() as captured:
        plain.print(
            board.page(Look(picture.snapshot(governor)), title=_title(), columns=columns, rows=None)
        )
    output.data("\n".join(line.rstrip() for line in captured.get().splitlines()))
    output.talk("this is no terminal, so one look is all; for scripts there is headway status")


def _watch(governor: Governor, console: Console, interval_seconds: float) -> None:
    from headway.cli import endings  # noqa: PLC0415
    from headway.cli.screen import Screen  # noqa: PLC0415
    from headway.cli.watching import Diary, Lookout  # noqa: PLC0415

    diary = Diary(endings.seen_by(governor))
    screen = Screen(console)
    lookout = Lookout(governor, diary, interval_seconds=interval_seconds, tell=screen.nudge)
    # The events on the screen say all that the log would.
    logging.disable(logging.CRITICAL)
    try:
        with screen:
            lookout.start()
            _Top(console, screen, lookout).run()
    finally:
        lookout.stop()
        logging.disable(logging.NOTSET)


class _Top:
    """What the person at the keyboard does: chooses, asks, quits."""

    def __init__(self, console: Console, screen: Screen, lookout: Lookout) -> None:
        self._console, self._screen, self._lookout = console, screen, lookout
        self._title = _title()
        self._chosen: str | None = None
        self._asked: WaitingView | None = None
        self._helps = self._over = False

    def run(self) -> None:
        """Draw and obey until they have seen enough."""
        while not self._over:
            self._draw(self._lookout.look)
            for key in self._screen.wait(_AGE_SECONDS):
                self._obey(key)

    def _draw(self, look: Look) -> None:
        from headway.cli import board  # noqa: PLC0415

        self._keep_choice(look)
        columns, rows = self._console.size
        picture = board.page(
            look,
            title=self._title,
            columns=columns,
            rows=rows,
            chosen=self._chosen,
            footer=self._footer(look),
        )
        self._screen.draw(picture)

    def _keep_choice(self, look: Look) -> None:
        """Forget a choice that does not wait any more."""
        waiting = {ticket.id for ticket in look.snapshot.waiting}
        if self._chosen not in waiting:
            self._chosen = None
        if self._asked is not None and self._asked.id not in waiting:
            self._asked = None

    def _footer(self, look: Look) -> list[Text]:
        from rich.text import Text  # noqa: PLC0415

        from headway.cli import board  # noqa: PLC0415
        from headway.cli.watching import label  # noqa: PLC0415

        if self._asked is not None:
            room = self._console.size.width - len(_QUESTION) - len(_ANSWERS)
            question = _QUESTION.format(board.shorten_middle(label(self._asked), room))
            return [Text.assemble((question, "bold yellow"), _ANSWERS)]
        helps = [Text(line, "bright_black") for line in _HELP] if self._helps else []
        choose = "↑↓ choose  c cancel  " if look.snapshot.waiting else ""
        return [*helps, Text(f"{choose}q quit  ? help", "bright_black")]

    def _obey(self, key: str) -> None:
        if self._asked is not None:
            self._answer(key)
        elif key == "q":
            self._over = True
        elif key in {"up", "k"}:
            self._choose(-1)
        elif key in {"down", "j"}:
            self._choose(1)
        elif key == "c":
            self._ask()
        elif key == "?":
            self._helps = not self._helps
        elif key == "escape":
            self._chosen, self._helps = None, False

    def _choose(self, step: int) -> None:
        waiting = [ticket.id for ticket in self._lookout.look.snapshot.waiting]
        if not waiting:
            return
        if self._chosen in waiting:
            place = waiting.index(self._chosen) + step
            self._chosen = waiting[min(max(place, 0), len(waiting) - 1)]
        else:
            self._chosen = waiting[0 if step > 0 else -1]

    def _ask(self) -> None:
        waiting = self._lookout.look.snapshot.waiting
        if self._chosen is None and waiting:
            self._chosen = waiting[0].id  # seen before it is asked about again
            return
        self._asked = next((one for one in waiting if one.id == self._chosen), None)

    def _answer(self, key: str) -> None:
        assert self._asked is not None
        if key in {"y", "Y"}:
            self._lookout.cancel(self._asked.id)
        if key in {"y", "Y", "n", "N", "q", "escape"}:
            self._asked = None


_QUESTION, _ANSWERS = "Cancel {}, which waits in line?", "  y yes  n no"
_HELP = (
    "━ in use   ╍ reserved for a ticket that waits at another key   ─ free",
    "the number is the place in line; ABOUT is how long it usually takes from there",
    "j k and the arrow keys choose, c asks and cancels, esc lets go, q quits",
)


def _title() -> str:
    try:
        place = place_of(config.load())
    except ConfigError:
        place = config.home_directory()
    person = os.path.expanduser("~")
    if place.startswith(person + os.sep):
        place = "~" + place[len(person) :]
    return f"headway · {output.clean(place)}"
