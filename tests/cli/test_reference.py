"""The pages in ``docs/`` say what the program does."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.cli.kit import Shell

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = re.findall(
    r"<!-- headway (.*?) -->\n```json\n(.*?)```", (DOCS / "json.md").read_text(), re.DOTALL
)
MORE = "…"


def test_the_reference_is_made_from_the_help_texts(tmp_path: Path) -> None:
    """If this fails, run docs/make_reference.py."""
    done = subprocess.run(
        [sys.executable, str(DOCS / "make_reference.py"), "--check"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert not done.stderr
    assert done.returncode == 0, "docs/reference.md is out of date: run docs/make_reference.py"


def shape(value: Any) -> Any:
    """A value without its contents: names, and the shape of what is below them."""
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [shape(inner) for inner in value[:1]]
    return "value"


def agrees(shown: Any, real: Any) -> bool:
    """Whether the program prints the documented names; ``…`` stands for more of them."""
    if isinstance(shown, dict) and isinstance(real, dict):
        missing, extra = shown.keys() - real.keys() - {MORE}, real.keys() - shown.keys()
        below = all(agrees(shown[name], real[name]) for name in shown.keys() & real.keys())
        return not missing and (MORE in shown or not extra) and below
    if isinstance(shown, list) and isinstance(real, list):
        return all(agrees(one, other) for one, other in zip(shown, real, strict=False))
    return bool(shown == real)


@pytest.mark.parametrize(("words", "example"), EXAMPLES, ids=[words for words, _ in EXAMPLES])
def test_the_json_page_shows_what_is_printed(shell: Shell, words: str, example: str) -> None:
    """Each example has exactly the names that the program prints."""
    shell.run("limits", "set", "agent", "1")
    shell.holding("agent/opencode", task="issue-15")
    shell.run("release", "issue-15", "--force")
    shell.holding("agent/opencode", task="issue-16")
    shell.waiting("agent/opencode", task="issue-17")
    shell.run("submit", "--no-start", "--on", "agent/opencode", "--max-runtime", "2h", "--", "true")

    printed = json.loads(shell.run(*words.split()).stdout)

    assert agrees(shape(json.loads(example)), shape(printed))


def test_a_page_without_examples_would_be_noticed() -> None:
    """The test above has something to compare, and notices a difference."""
    assert len(EXAMPLES) == 12
    assert not agrees({"a": "value"}, {"a": "value", "b": "value"})
    assert not agrees({"a": "value", "b": "value"}, {"a": "value"})
    assert agrees({"a": "value", MORE: "value"}, {"a": "value", "b": "value"})
