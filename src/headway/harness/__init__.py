"""Agent programs as guarded, isolated tasks: opencode, Claude Code, Codex, Gemini CLI, others."""

from __future__ import annotations

from headway.harness.base import Harness, Invocation
from headway.harness.claude import ClaudeCode
from headway.harness.result import Result
from headway.harness.scope import Cancellation

__all__ = ["Cancellation", "ClaudeCode", "Harness", "Invocation", "Result"]
