"""The names that a person gives to servers: file, variable, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway import ConfigError, base_urls, config


def _load(home: str, table: str, **environ: str) -> config.Settings:
    _write(home, f"[llm.providers]\n{table}\n")
    return config.load(home, environ)


def _write(home: str, text: str) -> None:
    os.makedirs(home, exist_ok=True)
    Path(home, "config.toml").write_text(text, encoding="utf-8")


def _problems(home: str, table: str, **environ: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        _load(home, table, **environ)
    return tuple(caught.value.problems)


def test_without_a_table_nobody_is_named(home: str) -> None:
    """Also for a governor without a home."""
    assert config.load(home, {}).providers == config.defaults({}).providers == {}


@pytest.mark.parametrize(
    ("written", "place"),
    [
        ("localhost", "localhost"),
        ("LocalHost.:11434", "localhost:11434"),
        ("HTTP://127.0.0.1:8000/", "127.0.0.1:8000"),
        ("https://Gateway.Example.com:443/OpenAI/v1/", "gateway.example.com/OpenAI/v1"),
        ("gateway.example.com/openai", "gateway.example.com/openai"),
        ("[::1]:8080", "[::1]:8080"),
        ("my_host-1", "my_host-1"),
    ],
)
def test_a_place_is_a_host_or_a_base_url(home: str, written: str, place: str) -> None:
    """However it is written, it is known in one way; the variable means the same."""
    assert dict(_load(home, f'"{written}" = "mine"').providers) == {place: "mine"}
    environ = {"HEADWAY_LLM_PROVIDERS": f"other=x {written}=mine"}
    assert config.load(home, environ).providers == {"other": "x", place: "mine"}
    assert base_urls.plain(place) == place


def test_the_names_cannot_be_changed(home: str) -> None:
    """Settings are frozen all the way."""
    settings = _load(home, 'localhost = "mine"')

    with pytest.raises(TypeError):
        settings.providers["localhost"] = "theirs"  # type: ignore[index]


@pytest.mark.parametrize(
    "place",
    [
        "",
        " ",
        "ftp://example.com",
        "https://",
        "https:///v1",
        "example.com:99999",
        "example.com:0",
        "example.com:http",
        "example.com:",
        "https://user:secret@example.com",
        "example.com?x=1",
        "example.com#x",
        "*.example.com",
        "two words",
        "a..b",
        "[::1",
        "[x]",
        "[::1]8080",
        ":8080",
    ],
)
def test_what_is_no_place_is_refused(home: str, place: str) -> None:
    """With the way to write it, and without what may be a secret."""
    [problem] = _problems(home, f'"{place}" = "mine"')

    assert "config.toml: llm.providers: " in problem
    assert 'write it like "localhost:8000"' in problem
    assert "secret" not in problem


@pytest.mark.parametrize("name", ['""', '"a/b"', '"two words"', '"*"', '"100%"', "5", "true", "[]"])
def test_what_is_no_name_is_refused(home: str, name: str) -> None:
    """A name is one part of a key, as it is."""
    [problem] = _problems(home, f'"localhost" = {name}')

    assert "'localhost' = " in problem
    assert 'write it like "my-server"' in problem


def test_a_host_without_quotes_is_understood(home: str) -> None:
    """TOML reads its dots as tables, and the problem says so."""
    [problem] = _problems(home, 'api.example.com = "mine"')

    assert "'api' has dots, so it needs quotes: \"api.example" in problem


def test_all_problems_are_reported_together(home: str) -> None:
    """Each with its place; two names of one place are one of them."""
    table = '"a b" = "x"\n"localhost" = "x/y"\n"https://c.d/" = "one"\n"c.d" = "two"\n"C.D" = "one"'
    problems = _problems(home, table, HEADWAY_STORE_TIMEOUT="soon")

    assert len(problems) == 4
    assert any("'c.d' is the same place as one with another name, 'one'" in p for p in problems)


@pytest.mark.parametrize("value", ["mine", "=", "localhost=", "=mine", "a=b=c", "a b=c", "a=b a=c"])
def test_a_bad_variable_is_refused(home: str, value: str) -> None:
    """It is named, and beats the file also when it is wrong."""
    problems = _problems(home, 'localhost = "mine"', HEADWAY_LLM_PROVIDERS=value)

    assert all(problem.startswith("HEADWAY_LLM_PROVIDERS") for problem in problems)


@pytest.mark.parametrize("section", ["llm.provider", "llm.providres", "providers"])
def test_near_misses_are_named(home: str, section: str) -> None:
    """A table with almost the right name would otherwise name nobody."""
    _write(home, f'[{section}]\n"localhost:8000" = "mine"\n')

    with pytest.raises(ConfigError, match=r"did you mean llm\.providers\?"):
        config.load(home, {})


@pytest.mark.parametrize("value", ["5", '"x"', '["localhost"]'])
def test_only_a_table_is_one(home: str, value: str) -> None:
    """Anything else is refused, with an example."""
    _write(home, f"[llm]\nproviders = {value}\n")

    with pytest.raises(ConfigError, match=r"llm\.providers"):
        config.load(home, {})


@given(st.text(max_size=30))
def test_one_spelling_stays_itself(text: str) -> None:
    """What was brought into the one spelling is in it."""
    place = base_urls.plain(text)

    assert place is None or base_urls.plain(place) == place
