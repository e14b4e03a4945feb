from __future__ import annotations

import pytest

from headway import spelling
from headway.llm import naming


def test_only_idle_keys_that_are_near_one_in_use_are_doubted() -> None:
    """Used ones, patterns that something matches, and strangers are not."""
    patterns = ["llm/openai", "llm/*", "llm/opnai", "web/search"]

    (doubt,) = spelling.doubts(patterns, {"llm", "llm/openai"})

    assert doubt == "nothing uses 'llm/opnai', but these are in use: llm/openai"


def test_a_key_in_use_that_is_known_is_not_what_another_meant() -> None:
    """Whoever wrote both knows them apart."""
    assert spelling.doubts(["llm/a-1", "llm/a-2"], {"llm/a-1"}, known=["llm/a-1", "llm/a-2"]) == []


def test_too_much_to_compare_is_not_compared() -> None:
    """A warning must not make a home with very many keys slow to open."""
    few, many = [f"k/{n}x" for n in range(10)], [f"k/{n}" for n in range(2000)]

    assert spelling.doubts(few, many[:20]) != []
    assert spelling.doubts(few, many) == []


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("llm/antropic", "llm/anthropic"),
        ("llm/antropic@work/claude-opus-4", "llm/anthropic@work/claude-opus-4"),
        ("agnt", "agent"),
        ("agents", "agent"),
        ("agent/claud", "agent/claude"),
        ("lm/openai", "llm/openai"),
        ("machin", "machine"),
        ("buid/docker", "build/docker"),
        ("llm/my-sever", "llm/my-server"),
        ("web/serach", "web/search"),
    ],
)
def test_a_name_that_all_know_or_that_has_a_limit_is_recognized(written: str, meant: str) -> None:
    """Built-in names, providers, agents, and keys with a limit, also where nothing runs."""
    configured = ["build/docker", "llm/my-server", "web/search"]

    (doubt,) = spelling.doubts([written], set(), configured=configured)

    assert doubt == f"nothing uses {written!r}; did you mean {meant}?"


@pytest.mark.parametrize(
    "written",
    ["llm/anthropic", "llm/openai-2", "llm/gpt-5", "agent/aider", "build", "llm/*", "k", "agent-2"],
)
def test_another_name_is_not_taken_for_a_misspelt_one(written: str) -> None:
    """Nor is a number or an addition: people count their servers and models."""
    assert spelling.doubts([written], set(), configured=["llm/gpt-4", "build/docker"]) == []


def test_every_provider_with_an_address_is_a_known_one() -> None:
    """A new one is entered in both places."""
    assert set(naming._HOSTS.values()) <= set(spelling.PROVIDERS)
