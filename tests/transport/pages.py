"""The pages about LLM calls, and a desk at which somebody tries what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cli.kit import until

if TYPE_CHECKING:
    from tests.llm.server import Server

    from headway import Governor

ROOT = Path(__file__).resolve().parents[2]
_PROGRAMS = os.path.dirname(sys.executable)
_PATIENCE_SECONDS = 90.0
# Read before the fixtures take all variables of Headway away, or a missing one is only skipped.
_SDKS_REQUIRED = "HEADWAY_REQUIRE_SDKS" in os.environ
_NOT_INHERITED = re.compile(r"HEADWAY_|OPENAI_|ANTHROPIC_|GEMINI_|GOOGLE_|(?i:.*_proxy$)|NO_COLOR$")
# What differs from run to run: the home, ids, pids, and how long something takes.
_VARIES = (
    (re.compile(r"^home .*$", re.MULTILINE), "home PATH"),
    (re.compile(r"\b[a-z0-9]{6}-\d+\b"), "ID"),
    (re.compile(r"(?<=\s)\d+(?=\s+ask\.py)"), "PID"),
    (re.compile(r"(~?\d+s|\?)(?=\s|$)"), "TIME"),
    (re.compile(r"\d+ s(?= left)"), "TIME"),
    (re.compile(r"[ \t]+"), " "),
)


@dataclass(frozen=True)
class Page:
    """One page: where it is, on which keys its programs count, and who answers for whom."""

    path: str
    keys: tuple[str, ...]
    providers: str
    section: str = ""  # if not all of the page is meant

    @property
    def text(self) -> str:
        text = (ROOT / self.path).read_text(encoding="utf-8")
        if not self.section:
            return text
        _, found, rest = text.partition(f"\n## {self.section}\n")
        assert found, f"{self.path} has no section {self.section!r}"
        return rest.partition("\n## ")[0]

    def blocks(self, language: str) -> list[str]:
        return re.findall(rf"^```{language}\n(.*?)^```$", self.text, re.MULTILINE | re.DOTALL)

    @property
    def commands(self) -> list[str]:
        """What is to be typed, without what only installs."""
        return [block for block in self.blocks("sh") if not block.startswith("pip install ")]

    @property
    def shown(self) -> str:
        """What ``headway status`` is said to print."""
        (block,) = self.blocks("text")
        return block.removeprefix("$ headway status\n")


_OPENAI, _ANTHROPIC = "llm/openai/gpt-5-mini", "llm/anthropic/claude-sonnet-4-5"
_OF_OPENAI = (_OPENAI,), "127.0.0.1=openai"

# A page is tried with these, if its client is one of those in tests/transport/sdks-*.txt.
VERSIONS = ("oldest", "newest")

README = Page("README.md", *_OF_OPENAI, section="LLM calls")
OVERVIEW = Page("docs/llm.md", *_OF_OPENAI)
CLIENTS = (
    Page("docs/llm/openai.md", *_OF_OPENAI),
    Page("docs/llm/anthropic.md", (_ANTHROPIC,), "127.0.0.1=anthropic"),
    Page("docs/llm/google-genai.md", ("llm/gemini/gemini-2.5-flash",), "127.0.0.1=gemini"),
    Page(
        "docs/llm/litellm.md",
        (_OPENAI, _ANTHROPIC),
        "127.0.0.1=openai 127.0.0.1/v1/messages=anthropic",
    ),
    Page("docs/llm/httpx.md", *_OF_OPENAI),
)
PAGES = (README, OVERVIEW, *CLIENTS)
# A page, and the environment of tests/transport/sdks-*.txt that has its framework.
FRAMEWORKS = {
    Page(
        "docs/llm/langchain.md",
        (_OPENAI, _ANTHROPIC),
        "127.0.0.1=openai 127.0.0.1/v1/messages=anthropic",
    ): "frameworks",
    Page("docs/llm/pydantic-ai.md", *_OF_OPENAI): "frameworks",
    Page("docs/llm/openai-agents.md", *_OF_OPENAI): "frameworks",
    Page("docs/llm/llama-index.md", *_OF_OPENAI): "frameworks-openai2",
    Page("docs/llm/instructor.md", *_OF_OPENAI): "frameworks-openai2",
}


def plain(printed: str) -> list[str]:
    """Lines of a table, without what differs from run to run."""
    for pattern, name in _VARIES:
        printed = pattern.sub(name, printed)
    return [line.strip() for line in printed.splitlines() if line.strip()]


class Desk:
    """A directory, a home and the usual variables of the providers."""

    def __init__(self, directory: Path, home: str, server: Server) -> None:
        self._directory = directory
        self.environ = {
            **{k: v for k, v in os.environ.items() if not _NOT_INHERITED.match(k)},
            "HEADWAY_HOME": home,
            "PATH": _PROGRAMS + os.pathsep + os.environ["PATH"],
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": f"{server.url}/v1",
            "OPENAI_API_BASE": f"{server.url}/v1",  # LlamaIndex reads this one
            "ANTHROPIC_API_KEY": "none",
            "ANTHROPIC_BASE_URL": server.url,
            "GEMINI_API_KEY": "none",
            "GOOGLE_GEMINI_BASE_URL": server.url,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # or it asks the network when it is loaded
            "OPENAI_AGENTS_DISABLE_TRACING": "1",  # or it sends traces to OpenAI
        }
        self._started: list[subprocess.Popen[str]] = []

    def use(self, versions: str) -> None:
        """Run programs in the environment of a ``sdks-*.txt``: ``oldest``, ``newest`` ..."""
        programs = ROOT / f".venv-sdks-{versions}" / "bin"
        if not programs.exists():
            assert not _SDKS_REQUIRED, f"{programs} is missing: make test"
            pytest.skip(f"{programs} is missing; `make test` installs it")
        self.environ["PATH"] = os.pathsep.join((str(programs), self.environ["PATH"]))

    def prepare(self, page: Page) -> None:
        """Type what the page says, and be known to it as its provider."""
        self.environ["HEADWAY_LLM_PROVIDERS"] = page.providers
        for block in page.commands:
            self.types(block)

    def types(self, commands: str) -> str:
        """Run it in a shell; what was printed, if it went well."""
        process = self._start("bash", "-e", "-c", commands)
        return self.end(process)

    def starts(self, program: str) -> subprocess.Popen[str]:
        """The program as it stands, saved as ``ask.py``."""
        (self._directory / "ask.py").write_text(program, encoding="utf-8")
        return self._start("python", "ask.py")

    def end(self, process: subprocess.Popen[str]) -> str:
        """Wait for it; what it printed, if it went well."""
        out, err = process.communicate(timeout=_PATIENCE_SECONDS)
        assert process.returncode == 0, out + err
        return out

    def leave(self) -> None:
        """Kill what still runs."""
        for process in self._started:
            process.kill()
            process.communicate()

    def _start(self, *command: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command,
            env=self.environ,
            cwd=self._directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process


def try_program(desk: Desk, governor: Governor, server: Server, page: Page, number: int) -> None:
    """Run one as written: it waits while ``llm`` is paused, then its calls are sent and counted."""
    desk.prepare(page)
    for key in page.keys:
        governor.set_limit(key, {"requests_per_minute": 1000})
    governor.pause("llm")
    process = desk.starts(page.blocks("python")[number])
    until(lambda: governor.snapshot().waiting or process.poll() is not None, "waiting in line")
    waiting = governor.snapshot().waiting
    assert waiting, desk.end(process)
    assert {key for row in waiting for key in row.keys} <= set(page.keys)
    assert (server.requests(), server.probes) == ([], []), "something went round the queue"

    governor.resume("llm")
    printed = desk.end(process)

    requests = server.requests()
    assert requests
    for request in requests:
        assert f"you said: {request.prompt}" in printed
    counted = {row.key: row.requests_lately for row in governor.snapshot().limits}
    assert {key.split("/")[-1]: counted[key] for key in page.keys if counted[key]} == {
        model: len(server.requests(model)) for model in {request.model for request in requests}
    }
