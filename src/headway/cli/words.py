"""Options of the commands that must start fast: parsed here by hand, and shown by click.

Those stand in front of other commands, so everything up to ``--`` or the first word
that is no option belongs to Headway, and the rest is left as it is.
"""

from __future__ import annotations

from headway import durations
from headway.cli import USAGE, Failure
from headway.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeVar

    import click

    T = TypeVar("T")


class Option:
    """One option: how it is written, what it takes, and what it is for."""

    __slots__ = ("help", "is_repeated", "name", "takes", "words")

    def __init__(
        self,
        words: str,
        takes: str,
        help: str,  # noqa: A002
        *,
        is_repeated: bool = False,
    ) -> None:
        self.words = tuple(words.split())
        self.name = self.words[-1].removeprefix("--").replace("-", "_")
        self.takes, self.help, self.is_repeated = takes, help, is_repeated


# What is asked for, and how urgently.
REQUEST = (
    Option(
        "--on",
        "KEY",
        "What it counts on [agent/PROGRAM]; give it again for more.",
        is_repeated=True,
    ),
    Option("--task", "NAME", "Your own name for the work, shown to people."),
    Option("--priority", "N", "A head start in the queue, -100 to 100 [0]."),
    Option("--weight", "N", "How many slots it takes [1]."),
)


class Given:
    """What was said for each option, and the words of the command that follows."""

    def __init__(self, command: str, options: Sequence[Option], words: list[str]) -> None:
        self._command = command
        self._values: dict[str, list[str]] = {option.name: [] for option in options}
        self.rest = self._read({word: o for o in options for word in o.words}, list(words))

    def _read(self, known: dict[str, Option], rest: list[str]) -> list[str]:
        while rest and rest[0].startswith("-") and rest[0] != "--":
            word, equals, value = rest.pop(0).partition("=")
            option = known.get(word)
            if option is None:
                raise self.wrong(f"there is no option {word}{_hint(word, known)}")
            if option.takes and not equals:
                if not rest or rest[0] == "--":
                    raise self.wrong(f"{word} needs a value: {word} {option.takes}")
                value = rest.pop(0)
            elif equals and not option.takes:
                raise self.wrong(f"{word} takes no value")
            self._values[option.name].append(value)
        if rest[:1] == ["--"]:
            rest.pop(0)
        if not rest or not rest[0]:
            usage = f"headway {self._command} [OPTIONS] -- COMMAND [ARGUMENTS]"
            raise self.wrong(f"what shall be run? {usage}")
        return rest

    def wrong(self, problem: str) -> Failure:
        """Bad usage, and where to read how it is done."""
        return Failure(f"{problem}\n  see: headway {self._command} --help", USAGE)

    def flag(self, name: str) -> bool:
        return bool(self._values[name])

    def text(self, name: str) -> str | None:
        """The last one counts."""
        given = self._values[name]
        return given[-1] if given else None

    def texts(self, name: str) -> list[str]:
        return self._values[name]

    def checked(self, name: str, check: Callable[[str], T]) -> T | None:
        text = self.text(name)
        return None if text is None else self.check(text, check)

    def check(self, text: str, check: Callable[[str], T]) -> T:
        try:
            return check(text)
        except ConfigError as error:
            raise self.wrong(str(error)) from None

    def whole(self, name: str, least: int, greatest: int) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            number = int(text)
        except ValueError:
            number = greatest + 1
        if not least <= number <= greatest:
            option = f"--{name.replace('_', '-')}"
            raise self.wrong(
                f"{option} must be a whole number from {least} to {greatest}, got {text!r}"
            )
        return number

    def duration(self, name: str, word: str = "") -> float | str | None:
        """Seconds, or the word that stands for none."""
        text = self.text(name)
        if text is None or (word and text == word):
            return text
        option = f"--{name.replace('_', '-')}"
        return self.check(text, lambda _: durations.from_text(text, name=option))


def _hint(word: str, known: dict[str, Option]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only when something is wrong

    near = get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def as_click(
    name: str,
    options: Sequence[Option],
    help: str,  # noqa: A002
    completions: dict[str, Any],
) -> click.Command:
    """The same as a click command, for help, completion and the reference."""
    import click  # noqa: PLC0415

    parameters: list[click.Parameter] = [
        click.Option(
            [*option.words, option.name],
            help=option.help,
            metavar=option.takes or None,
            is_flag=not option.takes,
            multiple=option.is_repeated,
            shell_complete=completions.get(option.name),
        )
        for option in options
    ]
    parameters.append(click.Argument(["command"], nargs=-1, metavar="-- COMMAND [ARGUMENTS]..."))
    return click.Command(name, params=parameters, help=help, no_args_is_help=True)
