"""Gemini CLI, with its stream of JSON events."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from headway import interpreter, keys
from headway.harness import warming
from headway.harness.base import Harness, Invocation
from headway.harness.events import Usage
from headway.harness.order import is_uuid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headway.harness.order import Order
    from headway.harness.records import Record
    from headway.harness.story import Story

_TOO_MANY = re.compile(r"\b429\b|RESOURCE_EXHAUSTED|quota", re.IGNORECASE)
_RETRIES = re.compile(r"Retrying after (\d{1,9})ms")
_FAILED = re.compile(r"^Attempt \d+ failed with status (\d{3})\b.*Retrying")
_DELAY = re.compile(r"retry after (\d{1,9}(?:\.\d{1,9})?)s\b")
_CUT = re.compile(r"incomplete|premature|terminated|stream ended", re.IGNORECASE)


class Gemini(Harness):
    """Runs prompts through Gemini CLI.

    After an update it rewrites the user's settings where they are in an older form, in place:
    a copy that starts at that moment reads half a file. So one copy looks at them before.
    """

    program = "gemini"
    install_hint = "npm install -g @google/gemini-cli"

    def invocation(self, order: Order, model: str | None) -> Invocation:
        words = [self.executable, "--output-format", "stream-json"]
        words += ["--model", model] if model else []
        words += ["--resume", order.session] if order.session else []
        words += ["--approval-mode=yolo"] if self.auto_approve else []
        environ = {"GEMINI_CLI_NO_RELAUNCH": "true"}
        if self.auto_approve:
            environ["GEMINI_CLI_TRUST_WORKSPACE"] = "true"
        return Invocation(words=[*words, *self.arguments], prompt=order.prompt, environ=environ)

    def preparation(self, program: str, environ: Mapping[str, str]) -> list[str] | None:
        home = environ.get("GEMINI_CLI_HOME") or environ.get("HOME", "/")
        settings = os.path.join(home, ".gemini", "settings.json")
        stamp = f"{settings}.headway"
        if not os.path.exists(settings) or warming.is_warm(stamp, program):
            return None
        return interpreter.words("headway.harness.warming", stamp, settings, program, "--version")

    def resumed_id(self, order: Order) -> str | None:
        # It may also be a number, or "latest".
        return order.session if order.session and is_uuid(order.session) else None

    def llm_key(self, model: str | None) -> str:
        return keys.llm_key("gemini", model)

    def read(self, record: Record, story: Story) -> None:
        kind = record.text("type")
        if kind == "init":
            story.begins(record.text("session_id"))
        elif kind == "message" and record.text("role") == "assistant":
            story.says(record.text("content"), is_piece=record.value("delta") is True)
        elif kind == "tool_use":
            name, arguments = record.text("tool_name"), record.value("parameters")
            story.uses(name, arguments, record.text("tool_id"))
        elif kind == "tool_result":
            output = record.text("output") or record.text("error", "message")
            is_error = record.text("status") != "success"
            story.gets(record.text("tool_id"), output, is_error=is_error)
        elif kind == "error":
            self._read_error(record, story)
        elif kind == "result":
            self._read_result(record, story)

    def read_error(self, line: str, story: Story) -> None:
        """Only there it says that it waits: "Attempt 1 failed … Retrying after 5117ms..."."""
        delay, failed = _RETRIES.search(line), _FAILED.search(line)
        if delay:
            story.retries("too many requests", status=429, delay_seconds=int(delay[1]) / 1000)
        elif failed:
            story.retries("a request failed", status=int(failed[1]))

    @staticmethod
    def _read_error(record: Record, story: Story) -> None:
        """Such as "Loop detected, stopping execution": it calls that a success afterwards."""
        message = record.text("message") or "it reported an error"
        if record.text("severity") == "error" or "stopping" in message:
            story.fails(message, is_cut=True)
        else:
            story.warns(message)

    @staticmethod
    def _read_result(record: Record, story: Story) -> None:
        story.spends(
            Usage(
                record.count("stats", "input_tokens"),
                record.count("stats", "output_tokens"),
                record.count("stats", "cached"),
            ),
            is_total=True,
        )
        if record.text("status") == "success":
            if story.error is None:
                story.completes()
            return
        error = record.text("error", "message") or story.error or "it reported an error"
        status = 429 if _TOO_MANY.search(error) else None
        delay = _DELAY.search(error)
        story.fails(
            error,
            status=status,
            is_cut=bool(_CUT.search(error)),
            delay_seconds=float(delay[1]) if delay else None,
        )
