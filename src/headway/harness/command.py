"""Any other program, with its plain text as the answer."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from headway.errors import ConfigError
from headway.harness.base import Harness, Invocation
from headway.harness.listening import PlainText
from headway.programs import can_be_passed_on

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headway.harness.order import Order
    from headway.harness.story import Story

_PLACE = "{prompt}"


class Command(Harness):
    """Runs prompts through a command of the caller's: ``Command("aider", "-m", "{prompt}")``.

    A word that is ``{prompt}`` is replaced by the prompt; without one the command reads it
    from its standard input. ``{model}`` likewise. Success is exit code 0 and some output.
    """

    def __init__(self, *words: Any, **options: Any) -> None:
        if not words or not all(isinstance(word, str) and word for word in words):
            raise ConfigError(f'a command is words: Command("aider", "--yes"), got {words!r}')
        for word in words:
            if not can_be_passed_on(word):
                raise ConfigError(f"the words of a command cannot have a NUL in them, got {word!r}")
        self.program = os.path.basename(words[0])
        super().__init__(executable=options.pop("executable", words[0]), **options)
        self._words: Sequence[str] = words[1:]

    def invocation(self, order: Order, model: str | None) -> Invocation:
        filled = {_PLACE: order.prompt, "{model}": model or ""}
        words = [filled.get(word, word) for word in self._words]
        is_read = _PLACE not in self._words
        return Invocation(
            words=[self.executable, *words, *self.arguments],
            prompt=order.prompt if is_read else None,
        )

    def listener(self, story: Story) -> PlainText:
        return PlainText(story)
