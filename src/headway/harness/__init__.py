"""Agent programs as guarded, isolated tasks: opencode, Claude Code, Codex, Gemini CLI, others."""

from __future__ import annotations

from headway.harness.base import Harness, Invocation
from headway.harness.claude import ClaudeCode
from headway.harness.codex import Codex
from headway.harness.command import Command
from headway.harness.gemini import Gemini
from headway.harness.opencode import OpenCode
from headway.harness.result import Result
from headway.harness.scope import Cancellation

__all__ = [
    "Cancellation",
    "ClaudeCode",
    "Codex",
    "Command",
    "Gemini",
    "Harness",
    "Invocation",
    "OpenCode",
    "Result",
]
