"""``headway top``: everything that runs and waits, live."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import click

from headway import config, durations
from headway.cli import opening, output, picture
from headway.cli.ending_runs import is_run
from headway.errors import ConfigError
from headway.views import WaitingView

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from headway.cli.finding import Found
    from headway.cli.screen import Screen
    from headway.cli.watching import Look, Lookout
    from headway.governor import Governor
    from headway.views import Snapshot

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
    output.drawn("\n".join(line.rstrip() for line in captured.get().splitlines()))
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
        self._asked: Found | None = None
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
        """Forget a choice that neither waits nor runs any more, or has begun to run."""
        everyone = {one.id: type(one) for one in _can_be_ended(look.snapshot)}
        if self._chosen not in everyone:
            self._chosen = None
        if self._asked is not None and everyone.get(self._asked.id) is not type(self._asked):
            self._asked = None

    def _footer(self, look: Look) -> list[Text]:
        from rich.text import Text  # noqa: PLC0415

        from headway.cli import board  # noqa: PLC0415
        from headway.cli.watching import label  # noqa: PLC0415

        if self._asked is not None:
            columns = self._console.size.width - len(_ANSWERS)
            long = _QUESTION if isinstance(self._asked, WaitingView) else _QUESTION_OF_RUN
            asked = long if columns - len(long) >= _LABEL_COLUMNS else _SHORT_QUESTION
            room = max(1, columns - len(asked))
            question = asked.format(board.shorten_middle(label(self._asked), room))
            return [Text.assemble((question, "bold yellow"), _ANSWERS)]
        helps = [
            Text(line, "bright_black", no_wrap=True, overflow="ellipsis")
            for line in (_HELP if self._helps else ())
        ]
        choose = "↑↓ choose  c cancel  " if _can_be_ended(look.snapshot) else ""
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
        snapshot = self._lookout.look.snapshot
        everyone = [one.id for one in _can_be_ended(snapshot)]
        if not everyone:
            return
        if self._chosen in everyone:
            place = everyone.index(self._chosen) + step
            self._chosen = everyone[min(max(place, 0), len(everyone) - 1)]
        elif step > 0 and snapshot.waiting:
            self._chosen = snapshot.waiting[0].id
        else:
            self._chosen = everyone[0 if step > 0 else -1]

    def _ask(self) -> None:
        if self._chosen is None:
            self._choose(1)  # seen before it is asked about again
            return
        everyone = _can_be_ended(self._lookout.look.snapshot)
        self._asked = next((one for one in everyone if one.id == self._chosen), None)

    def _answer(self, key: str) -> None:
        assert self._asked is not None
        if key in {"y", "Y"}:
            self._lookout.cancel(self._asked)
        if key in {"y", "Y", "n", "N", "q", "escape"}:
            self._asked = None


def _can_be_ended(snapshot: Snapshot) -> list[Found]:
    """What may be chosen: those who wait, and commands of ``headway run`` here."""
    here = os.uname().nodename
    runs = [one for one in snapshot.leases if is_run(one) and one.holder.host == here]
    return [*runs, *snapshot.waiting]


_QUESTION, _ANSWERS = "Cancel {}, which waits in line?", "  y yes  n no"
_QUESTION_OF_RUN = "End {}, which runs (SIGTERM)?"
_SHORT_QUESTION, _LABEL_COLUMNS = "Cancel {}?", 12
_HELP = (
    "━ in use   ╍ reserved for a ticket that waits at another key   ─ free",
    "the number is the place in line; ABOUT is how long it usually takes from there",
    "j k and the arrow keys choose, c asks and cancels, esc lets go, q quits",
)


def _title() -> str:
    try:
        place = opening.place(config.load())
    except ConfigError:
        place = config.home_directory()
    return f"headway · {output.clean(place)}"
