"""opencode, as ``opencode run --format json``."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from headway import keys
from headway.harness import warming
from headway.harness.base import Harness, Invocation
from headway.harness.events import Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headway.harness.order import Order
    from headway.harness.records import Record
    from headway.harness.story import Story

_TITLE_CHARS = 60


class OpenCode(Harness):
    """Runs prompts through opencode; models are written ``provider/model``.

    All runs share the user's database of sessions, which is made ready once before they
    do: several cold copies at once break each other.
    """

    program = "opencode"
    install_hint = "npm install -g opencode-ai"

    def invocation(self, order: Order, model: str | None) -> Invocation:
        words = [self.executable, "run", "--format", "json"]
        words += ["--model", model] if model else []
        if order.session:
            words += ["--session", order.session]
        else:
            # Without one, opencode asks a model for it beside the work.
            words += ["--title", _title(order)]
        environ = {"OPENCODE_DISABLE_AUTOUPDATE": "1"}
        if self.auto_approve:
            environ["OPENCODE_PERMISSION"] = '"allow"'
        return Invocation(words=[*words, *self.arguments], prompt=order.prompt, environ=environ)

    def llm_key(self, model: str | None) -> str | None:
        provider, _, name = (model or "").partition("/")
        return keys.llm_key(provider, name or None) if provider else None
