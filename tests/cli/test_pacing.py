"""Cool-downs and budgets of requests, wherever people look."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.cli.kit import until
from tests.cli.paced import MODEL, WHY, cool_for_a_moment, line, of, spend

from headway.cli.endings import Cards
from headway.cli.watching import Diary
from headway.clocks import time_of_day

if TYPE_CHECKING:
    from tests.cli.kit import Shell

    from headway import Governor


# -- status -----------------------------------------------------------------------------


def test_a_cooling_key_counts_down_and_says_why(shell: Shell, governor: Governor) -> None:
    """It is shown without slots and without anyone on it, and those below it point to it."""
    end = governor.cool_down("llm/openai", 300, reason=WHY)
    shell.holding("llm/anthropic")
    assert "REQ/MIN" not in shell.run("status").stdout

    seen = shell.run("status", MODEL).stdout
    row = of(shell, "llm/openai")

    assert line(seen, "llm/openai") == f"llm/openai 0/unlimited - - cooling, 5 min left ({WHY})"
    assert "cooling, 5 min left" in shell.run("status").stdout
    assert row["cooling_until"] == pytest.approx(end, abs=1)
    assert (row["cooling_reason"], row["probing"]) == (WHY, False)
    shell.waiting(MODEL)
    assert line(shell.run("status").stdout, "llm/openai").startswith("llm/openai 0/unlimited 1 -")
    assert line(shell.run("status", MODEL).stdout, MODEL).endswith("cooling at llm/openai")


def test_a_pause_is_told_before_a_cool_down(shell: Shell, governor: Governor) -> None:
    """A person's will lasts longer."""
    governor.cool_down("llm/openai", 300, reason=WHY)
    shell.run("pause", "llm")

    assert line(shell.run("status").stdout, "llm/openai").endswith("paused at llm")


def test_after_a_cool_down_one_request_tries_first(shell: Shell, governor: Governor) -> None:
    """That is said until it was answered, and then nothing any more."""
    cool_for_a_moment(shell, governor, "llm/openai")
    words = "cooled down, one request tries first (529)"
    assert line(shell.run("status").stdout, "llm/openai").endswith(words)
    process = shell.hold(MODEL)
    assert process.stdout
    assert process.stdin
    process.stdout.readline()
    ticket = shell.waiting(MODEL)

    assert line(shell.run("status").stdout, "llm/openai").endswith(words)
    assert f"llm/openai: {words}, 1/unlimited in use, 1 waiting" in shell.run("queue").stdout
    story = shell.run("why", ticket).stdout
    assert f"because    llm/openai is {words}" in story
    assert "then       one request goes first; when it was answered, the others follow" in story
    assert "may take   until the one request that goes first was answered" in story
    process.stdin.close()
    until(lambda: not of(shell, "llm/openai")["probing"], "the answer")
    assert "cooled" not in shell.run("status").stdout


def test_a_budget_has_a_column_of_its_own(shell: Shell, governor: Governor) -> None:
    """It shows the use of the last minute, and of a spent one how long it takes to the next."""
    assert "REQ/MIN" not in shell.run("status").stdout
    spend(governor, "llm/openai", 2, of=60)
    spend(governor, "llm/tiny", 3, of=3)

    seen = shell.run("status").stdout

    assert seen.splitlines()[2].split()[:3] == ["KEY", "SLOTS", "REQ/MIN"]
    assert line(seen, "agent") == "agent 0/3 - - default"
    assert line(seen, "llm/openai") == "llm/openai 0/unlimited 2/60 - file"
    assert re.fullmatch(r"llm/tiny 0/unlimited 3/3 - file next in \d+ s", line(seen, "llm/tiny")), (
        seen
    )
    assert of(shell, "llm/openai")["next_request_at"] is None
    row = of(shell, "llm/tiny")
    assert (row["requests_per_minute"], row["requests_lately"]) == (3, 3)
    assert 0 < row["next_request_at"] - time.time() <= 61


def test_a_key_whose_parts_stand_on_two_lines_names_both(shell: Shell, governor: Governor) -> None:
    """Slots from one, the budget from another."""
    governor.set_limit("llm/*", 8)
    spend(governor, "llm/openai", 1, of=60)

    assert line(shell.run("status").stdout, "llm/openai") == (
        "llm/openai 0/8 1/60 - file: llm/* + file"
    )


def test_a_reason_cannot_drive_the_terminal(shell: Shell, governor: Governor) -> None:
    """What a program gives as the reason is printed as plain text on one line."""
    governor.cool_down("llm/openai", 3000, reason="evil\x1b[2J\nnext")

    refused = shell.run("run", "--on", MODEL, "--", "true").stderr

    assert "(evil?[2J next)" in shell.run("status").stdout
    assert "(evil?[2J next)" in refused
    assert "\x1b" not in refused


def test_a_narrow_terminal_is_not_exceeded(shell: Shell, governor: Governor) -> None:
    """The reason gives way, the countdown stays; and of the home's path the end."""
    long_name = shell.home.with_name("x" * 90)
    long_name.symlink_to(shell.home)
    shell.environ["HEADWAY_HOME"] = str(long_name)
    governor.cool_down("llm/anthropic", 300, reason=WHY)
    spend(governor, "llm/openai", 3, of=60)

    terminal = shell.terminal("status")

    assert terminal.wait() == 0
    lines = [one.rstrip("\r") for one in terminal.text.splitlines()]
    assert max(len(one) for one in lines) <= 80
    assert "cooling, 5 min" in terminal.text
    assert "llm/anthropic" in terminal.text


# -- who waits --------------------------------------------------------------------------


def test_who_waits_for_the_end_of_a_cool_down_is_told_it(shell: Shell, governor: Governor) -> None:
    """The queue has the countdown, and why tells what will happen and who can shorten it."""
    shell.holding("llm/openai")
    end = governor.cool_down("llm/openai", 300, reason=WHY)
    ticket = shell.waiting(MODEL)

    title = shell.run("queue").stdout.splitlines()[0]
    story = shell.run("why", ticket).stdout

    assert title == f"llm/openai: cooling, 5 min left ({WHY}), 1/unlimited in use, 1 waiting"
    assert f"because    llm/openai is cooling, 5 min left ({WHY}), 1 of unlimited in use" in story
    clocks = [time_of_day(moment) for moment in (end - 1, end, end + 1)]
    assert any(f"then       at {clock} one request goes first; when" in story for clock in clocks)
    assert "may take   about 5 min" in story
    assert "  headway resume llm/openai " in story
    assert "headway release" not in story
    assert "limits set" not in story


def test_who_waits_for_a_request_is_told_when_there_is_one(
    shell: Shell, governor: Governor
) -> None:
    """The moment when the oldest request leaves the window, and when that was let in."""
    before = time.time()
    spend(governor, "llm/tiny", 2, of=2)
    ticket = shell.waiting("llm/tiny")

    title = shell.run("queue").stdout.splitlines()[0]
    story = shell.run("why", ticket).stdout

    assert re.fullmatch(
        r"llm/tiny: out of requests, next in \d+ s, 2/2 a minute, 0/unlimited in use, 1 waiting",
        title,
    )
    told = re.search(r"then       who was let in at (\S+) counts no longer from (\S+) on", story)
    assert told
    let_in = range(int(before) - 1, int(time.time()) + 2)
    assert told[1] in {time_of_day(moment) for moment in let_in}
    assert told[2] in {time_of_day(moment + 61) for moment in let_in}
    assert "budget     2 of 2 requests used in the last minute" in story
    assert "  headway limits set llm/tiny --requests-per-minute 3 " in story
    assert "headway release" not in story


def test_a_lease_tells_the_budgets_it_counts_on(shell: Shell, governor: Governor) -> None:
    """Beside the slots, for each key that has one."""
    governor.set_limit("llm/openai", {"requests_per_minute": 60})
    lease = shell.holding(MODEL)
    governor.cool_down("llm", 300, reason=WHY)

    story = shell.run("why", lease).stdout

    assert "llm/openai: 1 in use, 1/60 a minute\n" in story
    assert f"llm: 1 in use, cooling, 5 min left ({WHY})" in story


def test_check_says_what_only_time_brings(shell: Shell, governor: Governor) -> None:
    """A cool-down above, a spent budget, and a budget that leaves room."""
    governor.cool_down("llm/openai", 300, reason=WHY)
    spend(governor, "llm/tiny", 2, of=2)
    spend(governor, "llm/roomy", 2, of=60)

    cooling, spent, roomy = (
        shell.run("check", key) for key in (MODEL, "llm/tiny", "llm/roomy/model")
    )

    assert cooling.returncode == spent.returncode == 75
    assert cooling.stdout == (
        f"{MODEL}: no slot now: llm/openai is cooling, 5 min left ({WHY}),"
        " 0/unlimited in use, 0 waiting, about 5 min\n"
    )
    assert re.match(
        r"llm/tiny: no slot now: out of requests, next in \d+ s, 2/2 a minute,", spent.stdout
    )
    assert roomy.returncode == 0
    assert roomy.stdout == "llm/roomy/model: room for 58, 0 in use\n"


# -- top --------------------------------------------------------------------------------


def test_top_shows_cool_downs_and_budgets_and_tells_of_changes(
    shell: Shell, governor: Governor
) -> None:
    """Remarks beside the bars, and events when a provider wants to be left alone."""
    spend(governor, "llm/tiny", 2, of=3)
    governor.cool_down("llm/openai", 330, reason=WHY)
    shell.waiting(MODEL, task="waits")

    terminal = shell.terminal("top", columns=120, rows=40)

    terminal.wait_for("cooling 5m  1 waiting")
    terminal.wait_for("2/3 a minute")
    terminal.wait_for("llm/openai is cooling")
    governor.cool_down("llm/google", 200, reason="503")
    terminal.wait_for("is cooling, 3 min left (503)")
    governor.resume("llm/openai")
    terminal.wait_for("cools no more")
    governor.set_limit("llm/tiny", {"requests_per_minute": 2})
    terminal.wait_for("3 → 2 requests a minute")
    terminal.press("q")
    assert terminal.wait() == 0


def test_a_countdown_is_no_news(shell: Shell, governor: Governor) -> None:
    """That a key cools is told once; a longer cool-down, its end and the probe are news."""
    diary = Diary(Cards(str(shell.home / "live")))

    def news(*, probing: bool = False) -> list[str]:
        told, seen = len(diary.events), governor.snapshot()
        if probing:
            limits = [replace(one, cooling_until=None, probing=True) for one in seen.limits]
            seen = replace(seen, limits=tuple(one for one in limits if one.key == "llm/google"))
        return [event.detail for event in diary.read(seen)[told:]]

    with governor.slot("llm/google"):
        pass
    assert news() == []
    governor.cool_down("llm/google", 200, reason="503")
    assert news() == ["is cooling, 3 min left (503)"]
    assert news() == []
    governor.cool_down("llm/google", 2000, reason="429")
    assert news() == ["is cooling, 33 min left (429)"]
    assert news(probing=True) == ["is cooled down, one request tries first (429)"]
    assert news(probing=True) == []
    governor.resume("llm/google")
    assert news() == ["cools no more"]
