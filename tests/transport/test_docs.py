"""The pages about clients: every example is run as it is written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.transport.test_processes import PATIENCE_SECONDS

if TYPE_CHECKING:
    from tests.llm.server import Server

PAGES = sorted((Path(__file__).resolve().parents[2] / "docs" / "clients").glob("*.md"))
EXAMPLES = [
    pytest.param(page.stem, example, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, example in enumerate(
        re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL), start=1
    )
]
# Said after an example: what it has asked the home for.
_COUNTED = """
import headway
keys = {row.key for row in headway.governor.default().snapshot().limits if row.key.count("/") == 2}
print("counted on", *sorted(keys))
"""
# Where the clients look for their servers, if nobody tells them.
_SERVERS = {
    "OPENAI_BASE_URL": "{url}/v1",
    "ANTHROPIC_BASE_URL": "{url}",
    "ANTHROPIC_API_BASE": "{url}",
    "GOOGLE_GEMINI_BASE_URL": "{url}",
}
_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY")


def test_there_is_a_page_for_each_client() -> None:
    """With at least one example."""
    assert [page.stem for page in PAGES] == [
        "anthropic",
        "google-genai",
        "httpx",
        "litellm",
        "openai",
    ]
    assert {example.values[0] for example in EXAMPLES} == {page.stem for page in PAGES}


@pytest.mark.parametrize(("page", "example"), EXAMPLES)
def test_an_example_works_as_written(page: str, example: str, server: Server) -> None:
    """The model answers, and the call was counted."""
    server.plan(say="because")
    environ = {
        **os.environ,
        **{name: place.format(url=server.url) for name, place in _SERVERS.items()},
        **dict.fromkeys(_KEYS, "x"),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", example + _COUNTED],
        env=environ,
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    if "Why?" not in example:
        return
    models = {record.model for record in server.requests()}
    counted = done.stdout.rpartition("counted on ")[2].split()
    assert {key.rpartition("/")[2] for key in counted} == models, (page, done.stdout)
    if "print(" in example and "except" not in example:
        assert "because" in done.stdout
