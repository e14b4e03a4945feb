"""Claude Code, as ``claude -p`` with its stream of JSON events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway import keys
from headway.harness.base import Harness, Invocation
from headway.harness.events import Usage
from headway.harness.order import is_uuid

if TYPE_CHECKING:
    from headway.harness.order import Order
    from headway.harness.records import Record
    from headway.harness.story import Story


class ClaudeCode(Harness):
    """Runs prompts through Claude Code."""

    program = "claude"
    install_hint = "npm install -g @anthropic-ai/claude-code"

    def invocation(self, order: Order, model: str | None) -> Invocation:
        words = [self.executable, "-p", "--output-format", "stream-json", "--verbose"]
        words += ["--model", model] if model else []
        words += ["--resume", order.session] if order.session else []
        words += ["--dangerously-skip-permissions"] if self.auto_approve else []
        return Invocation(
            words=[*words, *self.arguments],
            prompt=order.prompt,
            environ={"DISABLE_AUTOUPDATER": "1"},
        )

    def resumed_id(self, order: Order) -> str | None:
        is_id = order.session and is_uuid(order.session)  # it may also be a title
        return order.session if is_id and "--fork-session" not in self.arguments else None

    def llm_key(self, model: str | None) -> str:
        return keys.llm_key("anthropic", model)

    def read(self, record: Record, story: Story) -> None:
        kind = record.text("type")
        if kind == "system" and record.text("subtype") == "init":
            story.begins(record.text("session_id"))
        elif kind == "system" and record.text("subtype") == "api_retry":
            delay = record.number("retry_delay_ms")
            story.retries(
                record.text("error") or "a request failed",
                status=record.count("error_status") or None,
                delay_seconds=None if delay is None else delay / 1000,
            )
        elif kind == "assistant":
            self._read_message(record, story)
        elif kind == "user":
            for part in record.tables("message", "content"):
                if part.text("type") == "tool_result":
                    story.gets(
                        part.text("tool_use_id"),
                        _shown(part),
                        is_error=part.value("is_error") is True,
                    )
        elif kind == "result":
            self._read_result(record, story)

    @staticmethod
    def _read_message(record: Record, story: Story) -> None:
        if record.text("message", "model") == "<synthetic>":
            return  # an error in words, which the result repeats
        for part in record.tables("message", "content"):
            if part.text("type") == "text":
                story.says(part.text("text"))
            elif part.text("type") == "tool_use":
                story.uses(part.text("name"), part.value("input"), part.text("id"))

    @staticmethod
    def _read_result(record: Record, story: Story) -> None:
        story.begins(record.text("session_id"))
        story.spends(
            Usage(
                record.count("usage", "input_tokens")
                + record.count("usage", "cache_creation_input_tokens"),
                record.count("usage", "output_tokens"),
                record.count("usage", "cache_read_input_tokens"),
                record.number("total_cost_usd"),
            ),
            is_total=True,
        )
        answer, subtype = record.text("result"), record.text("subtype")
        turns = record.number("num_turns")
        if record.value("is_error") is True or subtype != "success":
            status = record.count("api_error_status") or None
            story.fails(answer or subtype or "it reported an error", status=status)
        elif turns == 0:  # a command of its own, such as /help
            story.fails(f"it asked no model: {answer}")
        elif record.text("stop_reason") == "max_tokens":
            story.fails("its answer ended at the most tokens it may have", is_cut=True)
        else:
            story.completes(answer)


def _shown(part: Record) -> str:
    """What a tool answered: one text, or a list of them."""
    return part.text("content") or "\n".join(
        one.text("text") for one in part.tables("content") if one.text("text")
    )
