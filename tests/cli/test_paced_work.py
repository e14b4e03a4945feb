"""What cool-downs and budgets of requests mean to commands and jobs."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING

import pytest
from tests.cli.kit import until
from tests.cli.paced import MODEL, WHY, of, spend

from headway.clocks import time_of_day

if TYPE_CHECKING:
    from tests.cli.kit import Shell

    from headway import Governor


# -- run --------------------------------------------------------------------------------


def test_a_cool_down_that_lasts_too_long_refuses_a_run(shell: Shell, governor: Governor) -> None:
    """At once, with the end of it, the setting that decides, and what one can do."""
    end = governor.cool_down("llm/openai", 3000, reason="429, retry-after 3000 s")

    seen = shell.run("run", "--on", MODEL, "--", "touch", "started")

    assert seen.returncode == 75
    said = seen.stderr.splitlines()
    assert said[0] in {
        f"headway: llm/openai is cooling until {time_of_day(moment)} (429, retry-after 3000 s),"
        " longer than cooldown.max_wait; the work was not started"
        for moment in (end - 1, end, end + 1)
    }
    assert said[1:] == [
        "  to let people in again: headway resume llm/openai",
        "  see: headway status llm/openai",
    ]
    assert not (shell.directory / "started").exists()


def test_a_long_cool_down_sends_a_run_away_that_waits(shell: Shell, governor: Governor) -> None:
    """The provider speaks while it waits in line, and it learns of it."""
    governor.cool_down("llm/openai", 300, reason=WHY)
    process = shell.start("run", "--on", MODEL, "--", "true")
    until(shell.waits(1))

    governor.cool_down("llm/openai", 3000, reason="429, retry-after 3000 s")

    _, said = process.communicate(timeout=30)
    assert process.returncode == 75
    assert "longer than cooldown.max_wait" in said


def test_who_does_not_wait_is_not_told_how_long_others_would(
    shell: Shell, governor: Governor
) -> None:
    """With --no-wait a short cool-down is enough; a spent budget says when it has room."""
    governor.cool_down("llm/openai", 300, reason=WHY)
    spend(governor, "llm/tiny", 2, of=2)

    cooling = shell.run("run", "--no-wait", "--on", MODEL, "--", "true")
    spent = shell.run("run", "--no-wait", "--on", "llm/tiny", "--", "true")

    assert cooling.returncode == spent.returncode == 75
    assert f"({WHY}); the work was not started" in cooling.stderr
    assert "max_wait" not in cooling.stderr
    assert "llm/tiny is out of requests, next in " in spent.stderr


def test_a_run_that_waits_counts_down(shell: Shell, governor: Governor) -> None:
    """In a pipe it is said once; on a terminal in a line that fits."""
    governor.cool_down("llm/openai", 300, reason=WHY)
    spend(governor, "llm/tiny", 2, of=2)

    piped = shell.run("run", "--timeout", "1s", "--on", MODEL, "--", "true")
    terminal = shell.terminal("run", "--on", MODEL, "--", "true", columns=120)
    other = shell.terminal("run", "--on", "llm/tiny", "--", "true", columns=120)

    assert piped.returncode == 124
    assert (
        f"waiting for llm/openai, which is cooling, 5 min left ({WHY}): place 1, about 5 min"
        in piped.stderr
    )
    assert f"llm/openai is cooling, 5 min left ({WHY})\n" in piped.stderr
    terminal.wait_for("place 1 of 1, ~4m left · waiting ")
    terminal.wait_for(f"for llm/openai (cooling, 5 min left) · {WHY}")
    other.wait_for("for llm/tiny (out of requests, next in ")


# -- resume -----------------------------------------------------------------------------


def test_resume_ends_a_cool_down_before_its_time(shell: Shell, governor: Governor) -> None:
    """Everyone is let in at once, and one learns what was left of it."""
    governor.cool_down("llm/openai", 300, reason=WHY)
    waiter = shell.hold(MODEL)
    until(shell.waits(1))

    seen = shell.run("resume", "llm/openai")

    assert seen.returncode == 0
    assert seen.stdout == (
        "llm/openai resumed, its cool-down is ended: 1/unlimited in use;"
        f" it was cooling, 5 min left ({WHY})\n"
    )
    assert waiter.stdout
    assert waiter.stdout.readline()
    assert shell.run("resume", "llm/openai").returncode == 1


def test_resume_ends_a_pause_and_a_cool_down_together(shell: Shell, governor: Governor) -> None:
    """Both are told."""
    governor.cool_down("llm/openai", 300, reason=WHY)
    shell.run("pause", "llm/openai")

    seen = shell.run("resume", "llm/openai").stdout

    assert seen.startswith("llm/openai resumed, its cool-down is ended: 0/unlimited in use; it was")
    assert shell.run("check", "llm/openai").returncode == 0


def test_resuming_the_wrong_key_names_what_cools(shell: Shell, governor: Governor) -> None:
    """And leaves it alone."""
    governor.cool_down("llm/openai", 300, reason=WHY)
    shell.run("pause", "agent")

    seen = shell.run("resume", MODEL)

    assert seen.returncode == 1
    assert seen.stderr == (
        f"headway: {MODEL} was not paused; paused are: agent; cooling are: llm/openai\n"
    )
    assert of(shell, "llm/openai")["cooling_until"] is not None


# -- jobs -------------------------------------------------------------------------------


def submit(shell: Shell, key: str, *options: str) -> str:
    """Keep a job that nobody starts."""
    return shell.run("submit", "--no-start", *options, "--on", key, "--", "true").stdout


def test_jobs_stay_queued_and_say_until_when(shell: Shell, governor: Governor) -> None:
    """Also through a cool-down that everyone else is refused for."""
    end = governor.cool_down("llm/openai", 3000, reason="429, retry-after 3000 s")
    said = submit(shell, MODEL)
    submit(shell, "llm/openai/gpt-6")

    listed = shell.run("jobs").stdout
    shown = shell.run("show", "1").stdout
    (first, _) = json.loads(shell.run("jobs", "--json").stdout)

    outlooks = [
        f"paused until {time_of_day(moment)} (llm/openai cools down: 429, retry-after 3000 s)"
        for moment in (end - 1, end, end + 1)
    ]
    assert any(said == f"queued as 1, position 1, about 50 min; {one}\n" for one in outlooks)
    assert any(f"\njobs 1, 2: {one}\n" in listed for one in outlooks)
    assert any(f"\n             {one}\n" in shown for one in outlooks)
    assert re.search("llm/openai: 0 free, 0 in use, 0 waiting, next in ~(49|50)m: full", listed)
    assert first["blocked_by"] == {"key": "llm/openai", "reason": "cooling"}
    assert first["estimated_wait_seconds"] == pytest.approx(end - time.time(), abs=5)


def test_jobs_that_wait_for_a_request_say_when_there_is_one(
    shell: Shell, governor: Governor
) -> None:
    """The first of them goes then; the others follow as requests leave the window."""
    spend(governor, "llm/tiny", 2, of=2)
    said = submit(shell, "llm/tiny")

    row = json.loads(shell.run("jobs", "--json").stdout)[0]

    outlook = r"until \S+ at least \(llm/tiny is out of requests: 2/2 a minute\)"
    assert re.fullmatch(rf"queued as 1, position 1, about \d+ s; {outlook}\n", said)
    assert re.search(rf"\njob 1: {outlook}\n", shell.run("jobs").stdout)
    assert row["blocked_by"] == {"key": "llm/tiny", "reason": "budget"}
    assert 0 < row["estimated_wait_seconds"] <= 61


def test_a_job_that_must_not_wait_is_refused_with_the_reason(
    shell: Shell, governor: Governor
) -> None:
    """Nothing is queued where nobody is let in now."""
    governor.cool_down("llm/openai", 300, reason=WHY)
    spend(governor, "llm/tiny", 2, of=2)

    cooling, spent = (
        shell.run("submit", "--when-full", "reject", "--on", key, "--", "true")
        for key in (MODEL, "llm/tiny")
    )

    assert cooling.returncode == spent.returncode == 75
    assert re.fullmatch(
        r"headway: no slot now on llm/openai \(cooling until .+\); nothing was queued\n",
        cooling.stderr,
    )
    assert "no slot now on llm/tiny (out of requests); nothing was queued" in spent.stderr


def test_planners_see_keys_that_have_only_a_budget(shell: Shell, governor: Governor) -> None:
    """In the summary of jobs, with what it leaves."""
    spend(governor, "llm/tiny", 1, of=2)
    governor.cool_down("llm/openai", 300, reason=WHY)

    summary = json.loads(shell.run("jobs", "--summary", "--json").stdout)

    free = {one["key"]: (one["free"], one["pressure"]) for one in summary["capacity"]}
    assert free == {"agent": (3, "ok"), "llm/openai": (0, "full"), "llm/tiny": (1, "ok")}
