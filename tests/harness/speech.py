"""What the programs print, as records of the real ones have it."""

from __future__ import annotations

import json
from typing import Any


def spoken(program: str, text: str = "All done.", *, session: str = "s-1") -> str:
    """A script that says this in the program's own events, from beginning to end."""
    return printed(*answer(program, text, session=session))


def printed(*records: object) -> str:
    """A script that prints these records, one per line."""
    lines = "\n".join(one if isinstance(one, str) else json.dumps(one) for one in records)
    return f"cat <<'END_OF_EVENTS'\n{lines}\nEND_OF_EVENTS"


def answer(program: str, text: str, *, session: str = "s-1") -> list[dict[str, Any]]:
    """The records of a run that goes well."""
    return [*begun(program, session), *said(program, text, session), *done(program, text, session)]


def begun(program: str, session: str = "s-1") -> list[dict[str, Any]]:
    """How a run begins."""
    told: dict[str, list[dict[str, Any]]] = {
        "opencode": [{"type": "step_start", "sessionID": session, "part": {"type": "step-start"}}],
        "claude": [{"type": "system", "subtype": "init", "session_id": session}],
        "codex": [{"type": "thread.started", "thread_id": session}, {"type": "turn.started"}],
        "gemini": [{"type": "init", "session_id": session, "model": "m"}],
    }
    return told[program]


def said(program: str, text: str, session: str = "s-1") -> list[dict[str, Any]]:
    """How something is said."""
    content = [{"type": "text", "text": text}]
    told: dict[str, list[dict[str, Any]]] = {
        "opencode": [
            {"type": "text", "sessionID": session, "part": {"type": "text", "text": text}}
        ],
        "claude": [{"type": "assistant", "message": {"content": content}}],
        "codex": [{"type": "item.completed", "item": {"type": "agent_message", "text": text}}],
        "gemini": [
            {"type": "message", "role": "assistant", "content": piece, "delta": True}
            for piece in (text[: len(text) // 2], text[len(text) // 2 :])
        ],
    }
    return told[program]


def used(program: str, command: str, call: str = "call_1") -> list[dict[str, Any]]:
    """How a shell tool is used, and answers."""
    arguments = {"command": command}
    item = {"id": call, "type": "command_execution", "command": command}
    told: dict[str, list[dict[str, Any]]] = {
        "opencode": [
            {
                "type": "tool_use",
                "sessionID": "s-1",
                "part": {
                    "tool": "bash",
                    "callID": call,
                    "state": {
                        "status": "completed",
                        "input": arguments,
                        "output": "out",
                        "metadata": {"exit": 0},
                    },
                },
            },
            {
                "type": "step_finish",
                "part": {"reason": "tool-calls", "tokens": {"input": 5, "output": 2}},
            },
            {"type": "step_start", "part": {}},
        ],
        "claude": [
            {
                "type": "assistant",
                "message": {
                    "content": [
                        {"type": "tool_use", "id": call, "name": "Bash", "input": arguments}
                    ]
                },
            },
            {
                "type": "user",
                "message": {
                    "content": [{"type": "tool_result", "tool_use_id": call, "content": "out"}]
                },
            },
        ],
        "codex": [
            {"type": "item.started", "item": item},
            {
                "type": "item.completed",
                "item": {**item, "aggregated_output": "out", "exit_code": 0},
            },
        ],
        "gemini": [
            {
                "type": "tool_use",
                "tool_name": "run_shell_command",
                "tool_id": call,
                "parameters": arguments,
            },
            {"type": "tool_result", "tool_id": call, "status": "success", "output": "out"},
        ],
    }
    return told[program]


def done(program: str, text: str, session: str = "s-1") -> list[dict[str, Any]]:
    """How a run ends well: the terminal event."""
    tokens = {"input_tokens": 11, "output_tokens": 7}
    told: dict[str, list[dict[str, Any]]] = {
        "opencode": [
            {
                "type": "step_finish",
                "sessionID": session,
                "part": {"reason": "stop", "tokens": {"input": 11, "output": 7}, "cost": 0},
            }
        ],
        "claude": [
            {
                "type": "result",
                "subtype": "success",
                "is_error": False,
                "result": text,
                "session_id": session,
                "total_cost_usd": 0.5,
                "usage": tokens,
            }
        ],
        "codex": [{"type": "turn.completed", "usage": tokens}],
        "gemini": [{"type": "result", "status": "success", "stats": tokens}],
    }
    return told[program]
