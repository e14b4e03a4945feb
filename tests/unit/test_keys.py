from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headway import ConfigError, keys, llm_key

segments = st.text(
    st.characters(categories=["L", "N", "P", "S"], exclude_characters="/*"), min_size=1, max_size=6
)
some_keys = st.lists(segments, min_size=1, max_size=4).map("/".join)
# Any names, and names made of what escaping is about, which could be mistaken for each other.
names = st.text(st.characters(), min_size=1, max_size=20) | st.text(
    "/%2FA5*", min_size=1, max_size=4
)


def ancestors(key: str) -> set[str]:
    """The key and all above it, the slow way."""
    found = {key}
    while "/" in key:
        key = key.rpartition("/")[0]
        found.add(key)
    return found


@given(st.lists(some_keys, min_size=1, max_size=5).map(tuple))
def test_a_path_is_all_ancestors_deepest_first_then_by_name(named: tuple[str, ...]) -> None:
    """Whatever is named, the path has every ancestor once, in the one order for all."""
    path = keys.path(named)

    assert set(path) == set().union(*(ancestors(key) for key in named))
    assert len(path) == len(set(path))
    assert list(path) == sorted(path, key=lambda key: (-len(key.split("/")), key))


@given(st.lists(some_keys, min_size=1, max_size=5), st.randoms())
def test_the_path_does_not_depend_on_the_order_of_the_keys(
    named: list[str], random: object
) -> None:
    """Two tickets with the same keys collect them in the same order."""
    shuffled = list(named)
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    assert keys.path(tuple(named)) == keys.path(tuple(shuffled))


@given(some_keys, some_keys)
def test_common_ancestors_come_in_the_same_order_in_every_path(one: str, other: str) -> None:
    """No two tickets can ever collect two keys in opposite orders."""
    first, second = keys.path((one,)), keys.path((other,))
    common = set(first) & set(second)

    assert [key for key in first if key in common] == [key for key in second if key in common]


@given(some_keys)
def test_a_lineage_leads_from_the_root_to_the_key(key: str) -> None:
    """Each step is one segment longer than the one before."""
    lineage = keys.lineage(key)

    assert lineage[0] == key.split("/", maxsplit=1)[0]
    assert lineage[-1] == key
    assert set(lineage) == ancestors(key)


@given(names, names, st.none() | names, st.none() | names)
@example("/", "%2F", None, None)
@example("a", "a/b", "b", None)
def test_llm_key_gives_different_names_different_keys(
    provider: str, other: str, model: str | None, other_model: str | None
) -> None:
    """It is injective, also between provider and provider with model."""
    same = (provider, model) == (other, other_model)

    assert (llm_key(provider, model) == llm_key(other, other_model)) == same


@given(names, names)
def test_llm_key_is_always_a_valid_key_of_its_depth(provider: str, model: str) -> None:
    """Whatever a provider is called, the key is one, and a limit on it speaks of it alone."""
    key = llm_key(provider, model)

    assert keys.check(key) == key
    assert keys.lineage(key)[:2] == ["llm", llm_key(provider)]
    assert len(key.split("/")) == 3


def test_llm_key_leaves_usual_names_readable() -> None:
    """What needs no escaping is not escaped."""
    assert llm_key("anthropic", "claude-opus-4.1:beta") == "llm/anthropic/claude-opus-4.1:beta"
    assert llm_key("openrouter", "meta/llama 3") == "llm/openrouter/meta%2Fllama%203"
    assert llm_key("*") == "llm/%2A"


@pytest.mark.parametrize(
    "bad", ["", "/", "a/", "/a", "a//b", " a", "a ", "a\nb", "a\0", "\u200b", "*", "a/*", "*/a"]
)
def test_what_is_no_key_is_refused(bad: str) -> None:
    """Empty segments, control characters, outer blanks and stars."""
    with pytest.raises(ConfigError):
        keys.check(bad)


@pytest.mark.parametrize("bad", [None, 3, b"a", ["a"]])
def test_what_is_no_text_is_refused(bad: object) -> None:
    """Naming what it was."""
    with pytest.raises(ConfigError, match="text"):
        keys.check(bad)


def test_the_longest_and_deepest_keys() -> None:
    """The bounds themselves are fine, one more is not."""
    assert keys.check("x" * keys.MAX_LENGTH)
    assert keys.check("/".join("x" * keys.MAX_LEVELS))
    with pytest.raises(ConfigError, match="too long"):
        keys.check("x" * (keys.MAX_LENGTH + 1))
    with pytest.raises(ConfigError, match="too long"):
        keys.check("/".join("x" * (keys.MAX_LEVELS + 1)))


def test_a_star_is_a_whole_segment_of_a_pattern() -> None:
    """As part of a name it is just a letter."""
    assert keys.check("llm/*", pattern=True)
    assert keys.check("*", pattern=True)
    assert keys.check("a*b")
    assert not keys.matches("a*", "ab")


def test_a_path_without_keys_is_refused() -> None:
    """Nothing to limit is nothing to ask for."""
    with pytest.raises(ConfigError, match="at least one"):
        keys.path(())


def test_many_paths_do_not_fill_the_memory() -> None:
    """What is remembered is bounded."""
    for number in range(keys._CACHE_SIZE * 2):
        keys.path((f"bounded/{number}",))

    assert len(keys._paths) <= keys._CACHE_SIZE
