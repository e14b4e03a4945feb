"""The cases in which the real agents are recorded."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    """One run to record: what is asked, and what happens to it."""

    name: str
    prompt: str
    model: str = ""
    signal: signal.Signals | None = None  # sent in the middle of the answer
    without: tuple[str, ...] = ()  # variables that are not set
    changes: dict[str, str] = field(default_factory=dict)
    resumes: bool = False  # a session in which something was said before
    asks_for_help: bool = False  # instead
    ordered: dict[str, Any] = field(default_factory=dict)  # a plan for all that it asks


_KEYS = ("ANTHROPIC_API_KEY", "FAKE_KEY", "GEMINI_API_KEY")
_LIMITED = "[status: 429] [retry-after: 1] [retry-delay: 1s]"
_PARAGRAPHS = """[say: Grüße, 世界! Here is “quoted” text 🙂.

A second paragraph with `code`, a \\ backslash and a\ttab.

- a list
- of things]"""

CASES = (
    Case("plain", "say: a plain answer of several words"),
    Case("paragraphs", _PARAGRAPHS),
    Case("tool", "[tool: echo hello from the tool] say: the tool has run"),
    Case("two_tools", "[tool: echo first] [tool: echo second] say: both tools have run"),
    Case("failing_tool", "[tool: echo oops >&2; exit 3] say: the tool has failed"),
    Case("limited_once", f"{_LIMITED} [times: 1] say: after a limit"),
    Case("limited_for_ever", _LIMITED, changes={"CLAUDE_CODE_MAX_RETRIES": "2"}),
    Case("limited_without_delay", "[status: 429]", changes={"CLAUDE_CODE_MAX_RETRIES": "2"}),
    Case("overloaded_once", "[status: 503] [times: 1] say: after an overload"),
    Case("cut_once", "[cut: reset] [times: 1] say: one two three four five six"),
    Case("cut_for_ever", "[cut: clean] say: one two three four five six"),
    Case("unauthorized", "[status: 401]", changes={"CLAUDE_CODE_MAX_RETRIES": "2"}),
    Case("sigterm", "[hold: middle] say: one two three four", signal=signal.SIGTERM),
    Case("sigint", "[hold: middle] say: one two three four", signal=signal.SIGINT),
    Case("unknown_model", "say: never", model="no-such-model", ordered={"status": 404}),
    Case("no_login", "say: who knows", without=_KEYS, ordered={"status": 401}),
    Case("empty", "anything", ordered={"empty": True}),
    Case("resumed", "say: an answer in a resumed session", resumes=True),
    Case("help", "", asks_for_help=True),
)
