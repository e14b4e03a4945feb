"""Agent programs as guarded, isolated tasks: opencode, Claude Code, Codex, Gemini CLI, others."""

from __future__ import annotations

from headway.harness.base import Harness, Invocation
from headway.harness.claude import ClaudeCode
from headway.harness.codex import Codex
from headway.harness.command import Command
from headway.harness.gemini import Gemini
from headway.harness.opencode import OpenCode
from headway.harness.order import Options, Order
from headway.harness.records import Record
from headway.harness.result import Result
from headway.harness.scope import Cancellation
from headway.harness.story import Story

__all__ = [
    "Cancellation",
    "ClaudeCode",
    "Codex",
    "Command",
    "Gemini",
    "Harness",
    "Invocation",
    "OpenCode",
    "Options",
    "Order",
    "Record",
    "Result",
    "Story",
]
