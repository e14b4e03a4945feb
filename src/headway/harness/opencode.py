"""opencode, as ``opencode run --format json``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from headway import interpreter, keys
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
        words += ["--auto"] if self.auto_approve else []
        if order.session:
            words += ["--session", order.session]
        else:
            # Without one, opencode asks a model for it beside the work.
            words.append(f"--title={_title(order)}")
        return Invocation(
            words=[*words, *self.arguments],
            prompt=order.prompt,
            environ={"OPENCODE_DISABLE_AUTOUPDATE": "1"},
        )

    def preparation(self, program: str, environ: Mapping[str, str]) -> list[str] | None:
        data = environ.get("XDG_DATA_HOME") or os.path.join(
            environ.get("HOME", "/"), ".local/share"
        )
        database = os.path.join(data, "opencode", environ.get("OPENCODE_DB") or "opencode.db")
        stamp = f"{database}.headway"
        if environ.get("OPENCODE_DB") == ":memory:" or warming.is_warm(stamp, program):
            return None
        return interpreter.words("headway.harness.warming", stamp, "", program, "db", "path")

    def resumed_id(self, order: Order) -> str | None:
        return None if "--fork" in self.arguments else order.session

    def llm_key(self, model: str | None) -> str | None:
        provider, _, name = (model or "").partition("/")
        return keys.llm_key(provider, name or None) if provider else None

    def read(self, record: Record, story: Story) -> None:
        kind, part = record.text("type"), record.table("part")
        if record.text("sessionID"):
            story.begins(record.text("sessionID"))
        if kind == "step_start":
            story.goes_on()
        elif kind == "text":
            story.says(part.text("text"))
        elif kind == "tool_use":
            self._read_tool(part, story)
        elif kind == "step_finish":
            self._read_end_of_step(part, story)
        elif kind == "error":
            error = record.table("error")
            message = error.text("data", "message") or error.text("name") or "it reported an error"
            delay = error.text("data", "responseHeaders", "retry-after")
            story.fails(
                message,
                status=error.count("data", "statusCode") or None,
                delay_seconds=float(delay) if delay.isdecimal() else None,
            )

    @staticmethod
    def _read_tool(part: Record, story: Story) -> None:
        state, call = part.table("state"), part.text("callID")
        story.uses(part.text("tool"), state.value("input"), call)
        is_error = state.text("status") == "error" or state.count("metadata", "exit") != 0
        story.gets(call, state.text("output") or state.text("error"), is_error=is_error)

    @staticmethod
    def _read_end_of_step(part: Record, story: Story) -> None:
        story.spends(
            Usage(
                part.count("tokens", "input") + part.count("tokens", "cache", "write"),
                part.count("tokens", "output") + part.count("tokens", "reasoning"),
                part.count("tokens", "cache", "read"),
                part.number("cost"),
            )
        )
        reason = part.text("reason")
        if reason == "stop":  # "unknown" is a stream that was cut
            story.completes()
        elif reason == "length":
            story.fails("its answer ended at the most tokens it may have", is_cut=True)
        elif reason in ("content-filter", "error"):
            story.fails(f"its answer ended by {reason}", is_cut=True)


def _title(order: Order) -> str:
    return order.task or " ".join(order.prompt[: 2 * _TITLE_CHARS].split())[:_TITLE_CHARS]
