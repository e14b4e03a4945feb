"""The only file that prints: data on stdout, talk on stderr, colour where it is wanted."""

from __future__ import annotations

import os
import sys
import time

from headway import clocks, plain_text
from headway.cli import NOT_THERE, Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import TextIO, TypeAlias

    from rich.console import Console, RenderableType

    # A cell's text, or its text and its style.
    Cell: TypeAlias = RenderableType | tuple[str, str]
    # Makes a text fit into so many columns.
    Shortener: TypeAlias = Callable[[str, int], str]

# Wide enough that nothing is cut where nobody reads but a program or a pager.
_UNBOUNDED_COLUMNS = 10_000
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_GAP = 2
# Columns that give way first become this narrow, and only then the next ones.
_COMFORTABLE_COLUMNS, _LEAST_COLUMNS = 14, 6
_AND = " + "
# From so many on, a list is printed with one line for each, which is far faster.
_MANY = 200


def data(text: str) -> None:
    """Print what was asked for."""
    drawn(plain_text.lines(text))


def drawn(text: str) -> None:
    """Print lines that have colours of ours in them; a reader that has seen enough is no error."""
    try:
        _send(text + "\n")
    except BrokenPipeError:
        _print_no_more()
    except OSError as error:
        _print_no_more()
        raise Failure(f"cannot write to the standard output: {error.strerror}", NOT_THERE) from None


def foreign(pieces: Iterable[bytes]) -> None:
    """Print the output of another program: as it is to a program, harmless to a terminal.

    Raises ``BrokenPipeError`` when nobody reads it any more, because it may have no end.
    """
    if not sys.stdout.isatty():
        for piece in pieces:
            _send(piece)
        return
    from headway.cli.terminal_text import TerminalText  # noqa: PLC0415

    text = TerminalText(keeps_colours=_has_colours())
    try:
        for piece in pieces:
            _send(text.feed(piece))
    finally:
        _send(text.end())


def answer(text: str) -> None:
    """Print what another program has answered, in the same way."""
    if sys.stdout.isatty():
        foreign([text.encode(errors="backslashreplace"), b"\n"])
    else:
        drawn(text)


def _send(text: str | bytes) -> None:
    if isinstance(text, str):
        _write(sys.stdout, text)
    else:
        sys.stdout.buffer.write(text)
    sys.stdout.flush()


def _print_no_more() -> None:
    """What is left in Python's buffer goes nowhere, so that its end is not disturbed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def talk(text: str) -> None:
    """Say something to the person at the keyboard."""
    draw(f"headway: {plain_text.lines(text)}\n")


def draw(text: str) -> None:
    """Put this on the terminal as it is; who has gone away or has no room need not see it."""
    try:
        _write(sys.stderr, text)
        sys.stderr.flush()
    except OSError:
        pass


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
    except UnicodeEncodeError:  # a terminal of the last century, or a name that is no text
        encoding = stream.encoding or "ascii"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))


def as_json(value: object) -> None:
    """Print a value for programs."""
    if isinstance(value, list) and len(value) > _MANY:
        lines = ",\n".join(json_text(one) for one in value)
        data(f"[\n{lines}\n]")
    else:
        data(json_text(value, indent=2))


def json_text(value: object, indent: int | None = None) -> str:
    """JSON in which letters of all scripts are themselves, and what is not printed is escaped."""
    import json  # noqa: PLC0415

    text = json.dumps(value, indent=indent, ensure_ascii=False)
    if all(map(str.isprintable, text.split("\n"))):
        return text
    return "".join(
        char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text
    )


def console(stream: TextIO | None = None) -> Console:
    """A console on stdout or another stream: plain unless that is a terminal."""
    from rich.console import Console  # noqa: PLC0415 - takes longer to load than most commands run

    stream = stream or sys.stdout
    is_terminal = stream.isatty()
    coloured = is_terminal and _has_colours()
    return Console(
        file=stream,
        force_terminal=is_terminal,
        color_system="auto" if coloured else None,
        width=None if is_terminal else _UNBOUNDED_COLUMNS,
        highlight=False,
        markup=False,
    )


def _has_colours() -> bool:
    """Whether the person's terminal understands them, and they are wanted."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    *,
    right: Sequence[str] = (),
    folded: Sequence[str] = (),
    shortened: Mapping[str, Shortener] | None = None,
) -> None:
    """Print rows under headings.

    ``right`` names columns of numbers and ``folded`` long ones that may take more
    lines. ``shortened`` names those that give way when the window is narrow, the
    first of them first, and how.
    """
    from rich.table import Table  # noqa: PLC0415

    shortened, rows, printed = shortened or {}, list(rows), console()
    widths = _fitted(headings, rows, shortened, printed.width)
    drawn = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    for heading in headings:
        drawn.add_column(
            heading,
            justify="right" if heading in right else "left",
            overflow="fold" if heading in folded else "ellipsis",
            no_wrap=heading not in folded,
        )
    for row in rows:
        named = zip(headings, row, strict=True)
        drawn.add_row(*(_cell(cell, shortened.get(name), widths.get(name)) for name, cell in named))
    _draw(drawn, printed)


def _fitted(
    headings: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    shortened: Mapping[str, Shortener],
    columns: int,
) -> dict[str, int]:
    """The widths of columns that can be shortened, so that the table fits if it can."""
    from rich.cells import cell_len  # noqa: PLC0415

    widths = {
        heading: max([len(heading), *(cell_len(_text(row[place])) for row in rows)])
        for place, heading in enumerate(headings)
    }
    excess = sum(widths.values()) + _GAP * (len(widths) - 1) - columns
    for least in (_COMFORTABLE_COLUMNS, _LEAST_COLUMNS):
        for heading in [heading for heading in shortened if heading in widths]:
            cut = max(0, min(excess, widths[heading] - max(least, len(heading))))
            widths[heading] -= cut
            excess -= cut
    return {heading: widths[heading] for heading in shortened if heading in widths}


def _text(cell: Cell) -> str:
    text = cell[0] if isinstance(cell, tuple) else cell
    return text if isinstance(text, str) else str(text)


def _cell(cell: Cell, shorten: Shortener | None, width: int | None) -> RenderableType:
    from rich.text import Text  # noqa: PLC0415

    text, style = cell if isinstance(cell, tuple) else (cell, "")
    if not isinstance(text, str):
        return text
    text = plain_text.lines(text)
    return Text(text if shorten is None or width is None else shorten(text, width), style)


def heading(text: str) -> None:
    """Print a line that stands above a table."""
    from rich.text import Text  # noqa: PLC0415

    _draw(Text(plain_text.lines(text), style="bold"), console())


def _draw(what: RenderableType, printed: Console) -> None:
    with printed.capture() as captured:
        printed.print(what)
    drawn("\n".join(line.rstrip() for line in captured.get().splitlines()))


# -- texts that fit -----------------------------------------------------------------


def shorten_end(text: str, columns: int) -> str:
    """A text without its end, for labels and commands."""
    from rich.cells import cell_len, set_cell_size  # noqa: PLC0415

    return text if cell_len(text) <= columns else set_cell_size(text, columns - 1) + "…"


def shorten_start(text: str, columns: int) -> str:
    """A text without its beginning, for paths: their ends tell them apart."""
    return text if len(text) <= columns else "…" + text[len(text) - columns + 1 :]


def shorten_keys(text: str, columns: int) -> str:
    """Keys without their middle: the last name is what tells them apart."""
    keys = text.split(_AND)
    room = (columns - len(_AND) * (len(keys) - 1)) // len(keys)
    return text if len(text) <= columns else _AND.join(_shorten_key(key, room) for key in keys)


def _shorten_key(key: str, columns: int) -> str:
    *parents, last = key.split("/")
    shorter = [f"{parents[0]}/…/{last}"] if parents[1:] else []
    shorter += [f"…/{last}"] if parents else []
    for candidate in (key, *shorter):
        if len(candidate) <= columns:
            return candidate
    above = "…/" if parents else ""
    room = max(2, columns - len(f"{above}…"))
    return f"{above}{last[: room - room // 2]}…{last[-(room // 2) :]}"


def shorten_blocked(text: str, columns: int) -> str:
    """``KEY REASON`` with a shorter key, for the reason is what people look for."""
    key, _, reason = text.rpartition(" ")
    if len(text) <= columns:
        return text
    return f"{_shorten_key(key, columns - len(reason) - 1)} {reason}"


def fit(line: str) -> str:
    """A line of a list, cut at the edge of the terminal; whole where there is none."""
    if not sys.stdout.isatty():
        return line
    return shorten_end(line, os.get_terminal_size(sys.stdout.fileno()).columns or 80)


def joined(keys: Iterable[str]) -> str:
    """The keys of a ticket as one text."""
    return _AND.join(keys)


def clean(text: str) -> str:
    """Someone else's text on one line, and without power over the terminal."""
    return plain_text.one_line(text)


# -- numbers and times ----------------------------------------------------------------


def count(number: int, thing: str) -> str:
    """``1 slot``, ``2 slots``."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def length(seconds: float | None) -> str:
    """A length of time as people say it: ``40 s``, ``4 min``, ``2 h 5 min``."""
    if seconds is None:
        return "unknown"
    if seconds < 1:
        return "under 1 s"
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2 * _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    if seconds < 2 * _DAY:
        return f"{int(seconds // _HOUR)} h {int(seconds % _HOUR // _MINUTE)} min"
    return f"{int(seconds // _DAY)} d {int(seconds % _DAY // _HOUR)} h"


def brief_length(seconds: float | None) -> str:
    """The same for narrow columns: ``40s``, ``4m``, ``2h05m``, ``3d4h``."""
    if seconds is None:
        return "-"
    if seconds < 2 * _MINUTE:
        return f"{int(seconds)}s"
    if seconds < 2 * _HOUR:
        return f"{int(seconds // _MINUTE)}m"
    if seconds < 2 * _DAY:
        return f"{int(seconds // _HOUR)}h{int(seconds % _HOUR // _MINUTE):02}m"
    return f"{int(seconds // _DAY)}d{int(seconds % _DAY // _HOUR)}h"


def age(since: float) -> str:
    """How long ago a moment was."""
    return length(_seconds_since(since))


def brief_age(since: float) -> str:
    """The same for narrow columns."""
    return brief_length(_seconds_since(since))


def clock(moment: float) -> str:
    """A moment as a time of day, with its date if that is not today."""
    return clocks.time_of_day(moment)


def _seconds_since(moment: float) -> float:
    return max(0.0, time.time() - moment)
