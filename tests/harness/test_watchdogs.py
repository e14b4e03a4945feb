"""Watchdogs: off unless set, per call or in the settings; each says why it acted."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.harness.kit import HARNESSES, Diary
from tests.harness.speech import begun, printed, spoken, used

from headway import ConfigError, Governor
from headway.harness import ClaudeCode

if TYPE_CHECKING:
    from pathlib import Path

    from tests.harness.kit import Stage

SILENT = f"{printed(*begun('claude'))}\nexec sleep 600"
EVERY = pytest.mark.parametrize("program", list(HARNESSES))


def calls(program: str, count: int, *, same: bool) -> str:
    """A script that uses a tool so often, and then waits for ever."""
    records = [
        record
        for i in range(count)
        for record in used(program, "ls" if same else f"ls {i}", f"call_{i}")
    ]
    return f"{printed(*begun(program), *records)}\nexec sleep 600"


def test_max_runtime(stage: Stage) -> None:
    """Whatever the agent does meanwhile; it warns before."""
    script = f"{printed(*begun('claude'))}\nwhile :; do echo '{{}}'; sleep 0.02; done"
    diary = Diary()
    before = time.time()
    result = stage.agent("claude", script).execute("x", max_runtime="500ms", on_event=diary)

    assert result.status == "timed_out"
    assert (result.reason or "").startswith(
        "killed by the watchdog max_runtime: max_runtime = 0.5 s, last activity "
    )
    bite = result.ended_by
    assert bite is not None
    assert (bite.mechanism, bite.setting, bite.value) == ("max_runtime", "max_runtime", "0.5 s")
    assert before <= bite.last_activity_at <= time.time()
    assert diary.has("warned")
    assert not stage.processes()


def test_idle_warns_and_kills(stage: Stage) -> None:
    """Neither event nor computing."""
    diary = Diary()
    result = stage.agent("claude", SILENT).execute(
        "x", idle_warn="200ms", idle_kill="500ms", on_event=diary
    )

    assert result.status == "timed_out"
    assert result.ended_by is not None
    assert result.ended_by[:3] == ("idle_kill", "idle_kill", "0.5 s")
    assert "no output and no CPU time" in str(next(e for e in diary.events if e.kind == "warned"))


def test_a_warning_alone_ends_nothing(stage: Stage) -> None:
    """``idle_warn`` without ``idle_kill``."""
    diary = Diary()
    script = f"sleep 1; {spoken('claude')}"
    result = stage.agent("claude", script).execute("x", idle_warn="200ms", on_event=diary)

    assert result.ok
    assert diary.has("warned")


@pytest.mark.parametrize("who", ["agent", "tool"])
def test_computing_is_no_idleness(stage: Stage, who: str) -> None:
    """Of the agent itself, or of a tool in a session of its own."""
    busy = "i=0; while [ ! -e $HERE/enough ]; do i=$((i+1)); done"
    work = busy if who == "agent" else f"setsid sh -c '{busy}' & wait"
    script = f"(sleep 1.5; : > $HERE/enough) & {work}\n{spoken('claude')}"

    assert stage.agent("claude", script).execute("x", idle_kill="600ms").ok


def test_events_are_no_idleness(stage: Stage) -> None:
    """Without much computing."""
    script = f"for i in 1 2 3 4 5 6 7 8; do echo '{{}}'; sleep 0.15; done; {spoken('claude')}"

    assert stage.agent("claude", script).execute("x", idle_kill="700ms").ok


@EVERY
def test_max_tool_calls(stage: Stage, program: str) -> None:
    """One more than allowed ends it; as many as allowed do not."""
    agent = stage.agent(program, calls(program, 4, same=False))
    result = agent.execute("x", max_tool_calls=3)

    assert result.status == "failed"
    assert result.ended_by is not None
    assert result.ended_by[:3] == ("max_tool_calls", "max_tool_calls", "3")
    assert (result.reason or "").startswith(
        "killed by the watchdog max_tool_calls: max_tool_calls = 3, last activity"
    )
    allowed = agent.execute("x", max_tool_calls=4, max_runtime=0.5)
    assert allowed.status == "timed_out"
    assert len(allowed.tool_calls) == 4


@EVERY
def test_repeated_calls(stage: Stage, program: str) -> None:
    """The same tool with the same arguments, in a row; others in between count anew."""
    agent = stage.agent(program, calls(program, 4, same=True))
    result = agent.execute("x", max_repeated_calls=3)
    assert result.ended_by is not None
    assert result.ended_by[:3] == ("max_repeated_calls", "max_repeated_calls", "3")

    others = stage.agent(program, calls(program, 20, same=False))
    assert others.execute("x", max_repeated_calls=1, max_runtime=0.5).status == "timed_out"


def test_settings_from_the_environment(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """They count without a governor too, and are named."""
    monkeypatch.setenv("HEADWAY_WATCHDOG_MAX_TOOL_CALLS", "2")
    agent = stage.agent("claude", calls("claude", 3, same=False))

    result = agent.execute("x")

    assert result.ended_by is not None
    assert result.ended_by[:3] == ("max_tool_calls", "watchdog.max_tool_calls", "2")


def test_settings_of_a_home_and_off_per_call(stage: Stage, home: Path) -> None:
    """A call's own beats them; ``off`` disables all of it."""
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(
        '[watchdog]\nmax_runtime = "2s"\nidle_warn = "300ms"\nidle_kill = "700ms"\n'
        "max_tool_calls = 1\nmax_repeated_calls = 1\n"
    )
    with Governor(f"sqlite:///{home}") as governor:
        agent = stage.agent("claude", SILENT, governor=governor)
        result = agent.execute("x")
        assert result.ended_by is not None
        assert result.ended_by[:3] == ("idle_kill", "watchdog.idle_kill", "0.7 s")
        result = agent.execute("x", idle_kill="off", idle_warn="off", max_runtime="500ms")
        assert result.ended_by is not None
        assert result.ended_by[:3] == ("max_runtime", "max_runtime", "0.5 s")

        records = [record for i in range(3) for record in used("claude", "ls", f"c{i}")]
        patient = f"{printed(*begun('claude'), *records)}\nsleep 2.5\n{spoken('claude')}"
        off: dict[str, Any] = dict.fromkeys(
            ["max_runtime", "idle_warn", "idle_kill", "max_tool_calls", "max_repeated_calls"], "off"
        )
        diary = Diary()
        agent = stage.agent("claude", patient, governor=governor)
        assert agent.execute("x", on_event=diary, **off).ok
        assert not diary.has("warned")


@pytest.mark.parametrize(
    "options",
    [
        {"idle_kill": "10m", "max_runtime": "5m"},
        {"idle_warn": "10m", "max_runtime": "10m"},
        {"idle_warn": "3m", "idle_kill": "2m"},
    ],
)
def test_timers_that_shadow_each_other_are_refused(stage: Stage, options: dict[str, Any]) -> None:
    """Also one of a call and one of the settings."""
    with pytest.raises(ConfigError, match="can never act"):
        stage.agent("claude", "true").execute("x", **options)


def test_a_call_is_checked_against_the_settings(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each alone would do."""
    monkeypatch.setenv("HEADWAY_WATCHDOG_IDLE_KILL", "10m")
    agent = stage.agent("claude", "true")
    with pytest.raises(ConfigError, match="can never act"):
        agent.execute("x", max_runtime="5m")
    agent.execute("x", max_runtime="5m", idle_kill="off")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_runtime", 0),
        ("max_runtime", "soon"),
        ("max_runtime", float("nan")),
        ("idle_kill", -1),
        ("idle_warn", True),
        ("max_tool_calls", 0),
        ("max_tool_calls", "5"),
        ("max_tool_calls", 1.5),
        ("max_repeated_calls", True),
    ],
)
def test_bad_values_are_refused(stage: Stage, name: str, value: Any) -> None:
    """By their names."""
    with pytest.raises(ConfigError, match=name):
        stage.agent("claude", "true").execute("x", **{name: value})


def test_values_that_would_end_usual_work_are_flagged(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """When they are set, with how long they last, and once each."""
    agent = stage.agent("claude", spoken("claude"))
    for _ in range(2):
        agent.execute(
            "x", max_tool_calls=200, max_repeated_calls=2, max_runtime="1m", idle_kill="30s"
        )

    flags = [record.message for record in caplog.records if "may end" in record.message]
    assert [flag.partition(" may end usual work soon: ")[::2] for flag in flags] == [
        ("max_runtime", "60 seconds last for about 21 tool calls"),
        ("idle_kill", "models think for 30 seconds without a word"),
        ("max_tool_calls", "200 tool calls last about 9 minutes at 2.8 s each"),
        (
            "max_repeated_calls",
            "an agent that waits for something makes the same call 2 times in a row",
        ),
    ]


def test_settings_are_flagged_too_and_usual_values_are_not(
    stage: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the name that they have there."""
    monkeypatch.setenv("HEADWAY_WATCHDOG_MAX_TOOL_CALLS", "100")
    agent = stage.agent("claude", spoken("claude"))
    agent.execute("x", max_runtime="4h", idle_kill="30m", max_repeated_calls=20)
    assert "watchdog.max_tool_calls may end usual work soon" in caplog.text
    assert caplog.text.count("may end usual work") == 1
    caplog.clear()
    agent.execute("x", max_tool_calls="off")
    ClaudeCode(executable=agent.executable).execute("x", max_tool_calls=10_000)
    assert "may end" not in caplog.text
