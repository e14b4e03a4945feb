"""A real agent behind Headway's harness, and what is left of it in the process table."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from headway.harness import ClaudeCode, Codex, Gemini, OpenCode
from headway.harness.attempt import MARK

if TYPE_CHECKING:
    from tests.real.kit import Equipped

    from headway.harness import Harness

KINDS: dict[str, type[Harness]] = {
    "opencode": OpenCode,
    "claude": ClaudeCode,
    "codex": Codex,
    "gemini": Gemini,
}


def harness(equipped: Equipped, **options: Any) -> Harness:
    """The harness of an agent, with its own home and tools that need no approval."""
    model = f"fake/{equipped.agent.model}" if equipped.agent.name == "opencode" else ""
    options = {"model": model or equipped.agent.model, "auto_approve": True, **options}
    return KINDS[equipped.agent.name](executable=equipped.program, env=equipped.environ, **options)


def left_over(equipped: Equipped) -> list[str]:
    """What still runs of the agent's attempts: they and all they start have its home."""
    home = os.fsencode(f"HOME={equipped.home}")
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                variables = file.read().split(b"\0")
            with open(f"/proc/{name}/stat", encoding="utf-8") as file:
                state = file.read().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if (
            home in variables
            and state != "Z"
            and any(v.startswith(MARK.encode()) for v in variables)
        ):
            found.append(name)
    return found
