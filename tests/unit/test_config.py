from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import headway
from headway import ConfigError, config, setting_table
from headway.limits import Line

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(home: str) -> Path:
    """Where the home's file is."""
    os.makedirs(home)
    return Path(home) / "config.toml"


def test_without_a_file_everything_has_its_default(home: str) -> None:
    """A fresh home needs nothing, and reading makes nothing."""
    settings = config.load(home, {})

    assert (settings.boost_seconds, settings.max_waiting) == (600, 100_000)
    assert settings.store_timeout_seconds == 5
    assert (settings.lines, settings.paused, settings.offered_lines) == ((), frozenset(), ())
    assert (settings.inherited, settings.task) == ((), None)
    assert not os.path.exists(home)


def test_the_file_beats_the_defaults(home: str, path: Path) -> None:
    """Every setting can be written there."""
    path.write_text(
        'paused = ["k"]\n[queue]\nboost = "1m"\nmax_waiting = 7\n[store]\ntimeout = 2\n'
        '[limits]\nagent = 4\n"llm/*" = "unlimited"\n'
    )
    settings = config.load(home, {})

    assert (settings.boost_seconds, settings.max_waiting) == (60, 7)
    assert settings.store_timeout_seconds == 2
    assert settings.paused == {"k"}
    assert [line.pattern for line in settings.lines] == ["agent", "llm/*"]


def test_the_environment_beats_the_file(home: str, path: Path) -> None:
    """For every setting; and the other variables are read with it."""
    path.write_text('[queue]\nboost = "1m"\nmax_waiting = 7\n[store]\ntimeout = "2s"\n')
    settings = config.load(
        home,
        {
            "HEADWAY_QUEUE_BOOST": "30s",
            "HEADWAY_QUEUE_MAX_WAITING": "9",
            "HEADWAY_STORE_TIMEOUT": "1500ms",
            "HEADWAY_LEASE": "def-2 abc-1",
            "HEADWAY_TASK": "issue-16",
        },
    )

    assert (settings.boost_seconds, settings.max_waiting) == (30, 9)
    assert settings.store_timeout_seconds == 1.5
    assert (settings.inherited, settings.task) == (("def-2", "abc-1"), "issue-16")


def test_a_bare_number_is_seconds(home: str, path: Path) -> None:
    """In the file as a number; in the environment there is only text."""
    path.write_text("[queue]\nboost = 90\n")

    assert config.load(home, {}).boost_seconds == 90
    assert config.load(home, {"HEADWAY_QUEUE_BOOST": "30"}).boost_seconds == 30


def test_part_of_a_second_may_be_written_as_a_number(home: str, path: Path) -> None:
    """In the environment as in the file; what has to be whole is refused in both."""
    path.write_text("[queue]\nboost = 1.5\n")

    assert config.load(home, {}).boost_seconds == 1.5
    assert config.load(home, {"HEADWAY_QUEUE_BOOST": "0.25"}).boost_seconds == 0.25
    for variable in ("HEADWAY_QUEUE_MAX_WAITING", "HEADWAY_LIMITS"):
        with pytest.raises(ConfigError, match=variable):
            config.load(home, {variable: "agent=2.0" if "LIMITS" in variable else "2.0"})


def test_a_key_named_twice_in_the_environment_is_refused(home: str) -> None:
    """Which of the two was meant is not guessed."""
    with pytest.raises(ConfigError, match=r"HEADWAY_LIMITS.*agent.*twice"):
        config.load(home, {"HEADWAY_LIMITS": "agent=2,agent=3"})


def test_limits_in_the_environment_are_offered(home: str) -> None:
    """They are kept apart from the file's lines."""
    settings = config.load(home, {"HEADWAY_LIMITS": " agent=4 ,llm/*=unlimited,, a=b=2 "})

    assert settings.lines == ()
    assert settings.offered_lines == (
        Line("agent", 4, "environment"),
        Line("llm/*", 1 << 62, "environment"),
        Line("a=b", 2, "environment"),
    )


def test_every_problem_is_reported_together(home: str, path: Path) -> None:
    """Each with file or variable, key, value and how to write it."""
    path.write_text(
        'paused = ["a//b", 3]\nstray = 1\n[queue]\nbosst = "5m"\nmax_waiting = 0\n'
        '[store]\ntimeout = "0s"\n[limits]\nagent = "2"\n"x//y" = 1\n'
    )
    environ = {"HEADWAY_LIMITS": "k=0,nonsense", "HEADWAY_QUEUE_BOOST": "soon"}

    with pytest.raises(ConfigError) as caught:
        config.load(home, environ)

    wanted = [
        (str(path), "paused", "a//b"),
        (str(path), "paused", "3"),
        (str(path), "stray", "1"),
        (str(path), "queue.bosst", "'5m'", "did you mean queue.boost"),
        (str(path), "queue.max_waiting", "0", "whole number"),
        (str(path), "store.timeout", "0s"),
        (str(path), '"agent"', "'2'", "without quotes"),
        (str(path), "x//y", "empty segment"),
        ("HEADWAY_LIMITS", '"k"', "0"),
        ("HEADWAY_LIMITS", "nonsense", "agent=4"),
        ("HEADWAY_QUEUE_BOOST", "'soon'", "10m"),
    ]
    problems = caught.value.problems
    for words in wanted:
        assert any(all(word in problem for word in words) for problem in problems), words
    assert len(problems) == len(wanted), problems


@pytest.mark.parametrize(
    "text",
    [
        b"[limits\n",
        b"\xff\xfe",
        b"limits = 3\n",
        b'paused = "agent"\n',
        b"[[limits]]\n",
        b"[limits.llm]\nopenai = 2\n",
        b'[limits]\nagent = 1\n"agent" = 2\n',
        b"agent = 3\n",
        b"[queue]\nboost = true\n",
        b"[queue]\nmax_waiting = 1.5\n",
        b'[queue]\nmax_waiting = "1.5"\n',
        b"[queue.boost]\nx = 1\n",
        b"[limits]\nagent = 1" + b"0" * 5000 + b"\n",
        b"[queue]\nboost = 1" + b"0" * 5000 + b"\n",
    ],
    ids=lambda text: repr(text[:25]),
)
def test_a_file_that_makes_no_sense_is_refused_by_name(home: str, path: Path, text: bytes) -> None:
    """Never another error, never a guess."""
    path.write_bytes(text)

    with pytest.raises(ConfigError, match=re.escape(str(path))):
        config.load(home, {})


NEITHER_TEXT_NOR_ZERO = [
    setting.variable
    for name, setting in setting_table.SETTINGS.items()
    if not name.startswith(("jobs.notify", "store.password", "store.namespace"))
    and name not in {"jobs.retries", "jobs.retry_delay", "gateway.exempt"}
]


@pytest.mark.parametrize("variable", NEITHER_TEXT_NOR_ZERO)
@pytest.mark.parametrize("value", ["", "x", "-1", "0", "0s", "1" * 5000, "nan", "٣"])
def test_a_bad_variable_is_refused_by_name(home: str, variable: str, value: str) -> None:
    """Also an empty one: it is set, so it counts. Also for a governor without a home."""
    for load in (lambda environ: config.load(home, environ), config.defaults):
        with pytest.raises(ConfigError, match=variable):
            load({variable: value})


@pytest.mark.parametrize("task", ["x" * 1001, "a\udcff"])
def test_a_bad_task_label_in_the_environment_is_refused_by_name(home: str, task: str) -> None:
    """It would be the label of every slot."""
    with pytest.raises(ConfigError, match="HEADWAY_TASK"):
        config.load(home, {"HEADWAY_TASK": task})


def test_a_file_that_cannot_be_read_is_told(home: str, path: Path) -> None:
    """With what to look at."""
    path.mkdir()

    with pytest.raises(ConfigError, match="cannot be read"):
        config.load(home, {})


def test_settings_are_frozen(home: str) -> None:
    """They are read once."""
    settings = config.load(home, {})

    with pytest.raises(AttributeError, match="frozen"):
        settings.max_waiting = 3


def test_a_governor_without_a_home_has_no_limits_from_outside() -> None:
    """But the settings of the queue count, and the task."""
    settings = config.defaults(
        {
            "HEADWAY_LIMITS": "agent=4",
            "HEADWAY_LEASE": "abc-1",
            "HEADWAY_TASK": "t",
            "HEADWAY_QUEUE_MAX_WAITING": "5",
        }
    )

    assert (settings.home, settings.offered_lines) == ("", ())
    assert (settings.task, settings.max_waiting) == ("t", 5)


def test_the_home_is_where_the_variable_says() -> None:
    """Made absolute; empty counts as not set."""
    assert config.home_directory({"HEADWAY_HOME": "/x/../y"}) == "/y"
    assert config.home_directory({"HEADWAY_HOME": "y"}) == os.path.abspath("y")
    default = os.path.expanduser("~/.headway")
    assert config.home_directory({}) == config.home_directory({"HEADWAY_HOME": ""}) == default


def test_every_variable_is_documented_and_every_documented_one_is_read() -> None:
    """The code and ``docs/settings.md`` name the same ``HEADWAY_*`` variables."""
    known = {setting.variable for setting in setting_table.SETTINGS.values()} | set(
        setting_table.VARIABLES
    )
    source = Path(headway.__file__).parent
    named = {
        name
        for file in source.rglob("*.py")
        for name in re.findall(r"(?<!_)HEADWAY_[A-Z_]*[A-Z]", file.read_text(encoding="utf-8"))
    }
    documentation = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"(?<!_)HEADWAY_[A-Z_]*[A-Z]", documentation))

    assert named == known
    assert documented == known


def test_every_setting_is_documented_with_its_default() -> None:
    """A row of the table in ``docs/settings.md`` for each."""
    documentation = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z_.]+)` \| `(\w+)` \| `([^`]+)` \|", documentation, re.MULTILINE)

    assert {name: (variable, default.strip('"')) for name, variable, default in rows} == {
        name: (setting.variable, str(setting.default))
        for name, setting in setting_table.SETTINGS.items()
    }


def test_the_example_in_the_documentation_is_good(home: str, path: Path) -> None:
    """What people will copy can be loaded."""
    documentation = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", documentation, re.DOTALL)
    path.write_text(example)

    settings = config.load(home, {})

    assert len(settings.lines) == 5
    assert settings.paused == {"llm/openai"}
    assert settings.providers == {
        "localhost:11434": "ollama",
        "gateway.example.com/openai": "openai",
    }
