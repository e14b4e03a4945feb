"""Codex, as ``codex exec --json``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headway import keys
from headway.harness.base import Harness, Invocation
from headway.harness.events import Usage
from headway.harness.order import is_uuid

if TYPE_CHECKING:
    from headway.harness.order import Order
    from headway.harness.records import Record
    from headway.harness.story import Story

# Codex says in words which answer it got: "... last status: 429 Too Many Requests ...".
_STATUS = re.compile(r"\b([45]\d\d) [A-Z]")
_REPEATS = re.compile(r"^Reconnecting\.\.\. \d+/\d+")


class Codex(Harness):
    """Runs prompts through Codex."""

    program = "codex"
    install_hint = "npm install -g @openai/codex"

    def invocation(self, order: Order, model: str | None) -> Invocation:
        words = [self.executable, "exec", "--json", "--skip-git-repo-check"]
        words += ["--model", model] if model else []
        words += ["--dangerously-bypass-approvals-and-sandbox"] if self.auto_approve else []
        words += self.arguments
        words += ["resume", order.session] if order.session else []
        return Invocation(words=[*words, "-"], prompt=order.prompt)

    def cannot_resume(self, session: str) -> str | None:
        if is_uuid(session):
            return None
        return (
            f"session {session!r} is not an id of Codex, which is a UUID; for any other text that"
            " it does not know, Codex begins a new session without an error: pass the session_id"
            " of an earlier result"
        )

    def resumed_id(self, order: Order) -> str | None:
        return order.session

    def llm_key(self, model: str | None) -> str:
        return keys.llm_key("openai", model)

    def read(self, record: Record, story: Story) -> None:
        kind = record.text("type")
        if kind == "thread.started":
            story.begins(record.text("thread_id"))
        elif kind == "item.started":
            self._read_call(record.table("item"), story)
        elif kind == "item.completed":
            self._read_item(record.table("item"), story)
        elif kind == "turn.completed":
            story.spends(
                Usage(
                    record.count("usage", "input_tokens"),
                    record.count("usage", "output_tokens"),
                    record.count("usage", "cached_input_tokens"),
                )
            )
            story.completes()
        elif kind == "turn.failed":
            error = record.text("error", "message")
            story.fails(error or "its turn failed", status=_status(error))
        elif kind == "error":
            self._read_error(record.text("message"), story)

    @staticmethod
    def _read_call(item: Record, story: Story) -> None:
        kind = item.text("type")
        if kind == "command_execution":
            story.uses("shell", {"command": item.text("command")}, item.text("id"))
        elif kind == "mcp_tool_call":
            tool = f"{item.text('server')}.{item.text('tool')}"
            story.uses(tool, item.value("arguments"), item.text("id"))
        elif kind == "web_search":
            story.uses("web_search", {"query": item.text("query")}, item.text("id"))

    @staticmethod
    def _read_item(item: Record, story: Story) -> None:
        kind = item.text("type")
        if kind == "agent_message":
            story.says(item.text("text"))
        elif kind == "command_execution":
            output, code = item.text("aggregated_output"), item.value("exit_code")
            story.gets(item.text("id"), output, is_error=code != 0)
        elif kind == "file_change":
            story.uses("file_change", item.value("changes"), item.text("id"))
            story.gets(item.text("id"), "", is_error=item.text("status") == "failed")
        elif kind in ("mcp_tool_call", "web_search"):
            story.gets(item.text("id"), "", is_error=item.text("status") == "failed")

    @staticmethod
    def _read_error(message: str, story: Story) -> None:
        if _REPEATS.match(message):
            story.retries(message, status=_status(message))
        else:
            story.fails(message or "it reported an error", status=_status(message))


def _status(message: str) -> int | None:
    found = _STATUS.search(message)
    return int(found[1]) if found else None
