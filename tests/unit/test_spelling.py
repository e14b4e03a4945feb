from __future__ import annotations

from headway import spelling


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
