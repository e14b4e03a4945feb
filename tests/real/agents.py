"""The real agents: their versions, how each is set up for a model server, how each is asked."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pathlib import Path


# The version of an agent that is whatever npm has at the moment.
NEWEST = "latest"


class Agent(Protocol):
    """One agent's program."""

    @property
    def name(self) -> str: ...
    @property
    def package(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def model(self) -> str: ...

    def settings(self, home: Path, url: str) -> dict[str, str]:
        """Write the settings that lead to the server, and return its own variables."""
        ...

    def asking(self, prompt: str, *, model: str = "", session: str = "") -> list[str]:
        """The arguments that ask for one answer, as JSON lines, with tools run unattended."""
        ...


@dataclass(frozen=True)
class Opencode:
    """opencode, by its OpenAI compatible provider."""

    name: str = "opencode"
    package: str = "opencode-ai"
    version: str = "1.18.33"
    model: str = "fake-1"

    def settings(self, home: Path, url: str) -> dict[str, str]:
        models = {
            "fake-1": {"name": "fake-1", "limit": {"context": 200_000, "output": 8_192}},
            "fake-small": {"name": "fake-small"},
        }
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "fake",
            "options": {"baseURL": f"{url}/v1", "apiKey": "{env:FAKE_KEY}"},
            "models": models,
        }
        settings = {
            "autoupdate": False,
            "share": "disabled",
            "model": "fake/fake-1",
            "small_model": "fake/fake-small",
            "lsp": False,
            "formatter": False,
            "enabled_providers": ["fake"],
            "permission": "allow",
            "provider": {"fake": provider},
        }
        _write(home / ".config/opencode/opencode.json", settings)
        return {
            "FAKE_KEY": "dummy",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        }

    def asking(self, prompt: str, *, model: str = "", session: str = "") -> list[str]:
        chosen = ["run", "--format", "json", "--model", f"fake/{model or self.model}"]
        return [*chosen, *(["--session", session] if session else []), prompt]


@dataclass(frozen=True)
class Claude:
    """Claude Code."""

    name: str = "claude"
    package: str = "@anthropic-ai/claude-code"
    version: str = "2.1.197"
    model: str = "claude-fake"

    def settings(self, home: Path, url: str) -> dict[str, str]:
        return {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "dummy",
            "CLAUDE_CONFIG_DIR": str(home / ".claude"),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "IS_SANDBOX": "1",  # else it runs no tools for root
        }

    def asking(self, prompt: str, *, model: str = "", session: str = "") -> list[str]:
        shape = ["-p", "--output-format", "stream-json", "--verbose"]
        chosen = [*shape, "--model", model or self.model, "--dangerously-skip-permissions"]
        return [*chosen, *(["--resume", session] if session else []), prompt]


@dataclass(frozen=True)
class Codex:
    """Codex, by a provider of its settings file."""

    name: str = "codex"
    package: str = "@openai/codex"
    version: str = "0.166.0"
    model: str = "fake-1"

    def settings(self, home: Path, url: str) -> dict[str, str]:
        # Without plugins = false it lingers for five seconds when GitHub cannot be reached.
        text = f"""\
model = "fake-1"
model_provider = "fake"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
[features]
plugins = false
[analytics]
enabled = false
[model_providers.fake]
name = "fake"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "FAKE_KEY"
"""
        _write(home / ".codex/config.toml", text)
        return {"CODEX_HOME": str(home / ".codex"), "FAKE_KEY": "dummy"}

    def asking(self, prompt: str, *, model: str = "", session: str = "") -> list[str]:
        chosen = ["exec", "--json", "--skip-git-repo-check", "--model", model or self.model]
        return [*chosen, *(["resume", session] if session else []), prompt]


@dataclass(frozen=True)
class Gemini:
    """Gemini CLI."""

    name: str = "gemini"
    package: str = "@google/gemini-cli"
    version: str = "0.61.0"
    model: str = "gemini-fake"

    def settings(self, home: Path, url: str) -> dict[str, str]:
        settings = {
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "general": {"enableAutoUpdate": False, "maxAttempts": 3},
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
        }
        _write(home / ".gemini/settings.json", settings)
        return {
            "GEMINI_API_KEY": "dummy",
            "GOOGLE_GEMINI_BASE_URL": url,
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
            "GEMINI_CLI_NO_RELAUNCH": "true",
        }

    def asking(self, prompt: str, *, model: str = "", session: str = "") -> list[str]:
        shape = ["--output-format", "stream-json", "-m", model or self.model]
        chosen = [*shape, "--approval-mode=yolo", *(["--resume", session] if session else [])]
        return [*chosen, "-p", prompt]


AGENTS: tuple[Agent, ...] = (Opencode(), Claude(), Codex(), Gemini())
NEWEST_AGENTS: tuple[Agent, ...] = (
    Opencode(version=NEWEST),
    Claude(version=NEWEST),
    Codex(version=NEWEST),
    Gemini(version=NEWEST),
)
PINNED = {agent.name: agent.version for agent in AGENTS}


def private_environment(home: Path) -> dict[str, str]:
    """An environment with nothing of the person's, but for where programs are."""
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / ".local/share"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "XDG_STATE_HOME": str(home / ".local/state"),
        "TMPDIR": str(home / "tmp"),
        "TERM": "dumb",
        "LANG": "C.UTF-8",
    }
    (home / "tmp").mkdir(parents=True, exist_ok=True)
    return environ


def _write(path: Path, content: str | dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
