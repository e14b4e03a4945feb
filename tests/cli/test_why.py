"""``headway why``: the story of one ticket or lease."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.kit import Shell


def test_a_wait_is_explained(shell: Shell) -> None:
    """The story has the key, the place, those in front, the holders, the limit and remedies."""
    shell.run("limits", "set", "agent", "1")
    lease = shell.holding("agent/opencode", task="holder")
    front = shell.waiting("agent/claude", task="front", priority=7)
    ticket = shell.waiting("agent/opencode", task="mine")

    seen = shell.run("why", "mine")

    assert seen.returncode == 0
    story = seen.stdout
    assert f"{ticket} (mine) waits for agent/opencode." in story
    assert "stands at  agent, place 2" in story
    assert "because    agent is full, 1 of 1 in use" in story
    assert "limit      1, from the home's config.toml" in story
    assert "may take   unknown" in story
    assert f"  1. {front} (front), waits " in story
    assert "priority 7" in story
    assert f"  {lease} (holder), for " in story
    assert "agent.py" in story
    assert "  headway limits set agent 2 " in story
    assert f"  headway release {lease} " in story
    assert f"  headway cancel {ticket} " in story


def test_a_pause_is_the_reason_and_resume_the_remedy(shell: Shell) -> None:
    """Who waits at a paused key learns who can help."""
    shell.run("pause", "llm/openai")
    ticket = shell.waiting("llm/openai/gpt-5")

    story = shell.run("why", ticket).stdout

    assert "because    llm/openai is paused" in story
    assert "may take   until somebody resumes it" in story
    assert "  headway resume llm/openai " in story
    assert "limits set" not in story


def test_what_is_kept_for_a_ticket_is_told(shell: Shell) -> None:
    """A ticket with two limited keys has room on the first while it waits at the second."""
    shell.run("limits", "set", "agent", "1")
    shell.run("limits", "set", "llm/openai", "2")
    shell.holding("agent")
    shell.waiting("agent", "llm/openai", task="both", weight=1)

    assert "has room   on llm/openai" in shell.run("why", "both").stdout
    assert json.loads(shell.run("why", "both", "--json").stdout)["room_on"] == ["llm/openai"]


def test_a_heavy_ticket_says_how_much_it_wants(shell: Shell) -> None:
    """One who needs more than is free is understood only with that number."""
    shell.holding("agent")
    shell.waiting("agent", task="heavy", weight=3)

    story = shell.run("why", "heavy").stdout

    assert "waits for agent, 3 slots of each." in story
    assert "1 of 3 in use" in story


def test_a_lease_says_what_it_holds(shell: Shell) -> None:
    """For a lease one learns its keys, its process and how many wait for it."""
    shell.run("limits", "set", "agent", "1")
    lease = shell.holding("agent/opencode", task="holder")
    shell.waiting("agent")

    story = shell.run("why", "holder").stdout

    assert f"{lease} (holder) runs; it holds agent/opencode." in story
    assert "counts on  agent: 1 of 1 in use" in story
    assert "agent/opencode: 1 in use" in story
    assert "waiting    1 at these keys" in story
    assert f"headway release {lease}" in story


def test_json_tells_the_same(shell: Shell) -> None:
    """Programs get rows of the status, put together."""
    shell.run("limits", "set", "agent", "1")
    lease = shell.holding("agent")
    front = shell.waiting("agent")
    ticket = shell.waiting("agent", task="mine")

    wait = json.loads(shell.run("why", "mine", "--json").stdout)
    hold = json.loads(shell.run("why", lease, "--json").stdout)

    assert wait["state"] == "waiting"
    assert wait["ticket"]["id"] == ticket
    assert wait["limit"]["key"] == "agent"
    assert [other["id"] for other in wait["in_front"]] == [front]
    assert [holder["id"] for holder in wait["held_by"]] == [lease]
    assert hold["state"] == "running"
    assert hold["lease"]["id"] == lease
    assert [limit["key"] for limit in hold["limits"]] == ["agent"]
    assert hold["waiting"] == 2


def test_the_beginning_of_an_id_is_enough(shell: Shell) -> None:
    """People type as little as is clear."""
    lease = shell.holding("agent")

    assert f"{lease} runs" in shell.run("why", lease[:3]).stdout


def test_a_name_that_fits_several_is_refused(shell: Shell) -> None:
    """Two of one task: both ids are named, and nothing is guessed."""
    ids = {shell.holding("agent", task="twin"), shell.holding("agent", task="twin")}

    seen = shell.run("why", "twin")

    assert seen.returncode == 1
    assert all(lease in seen.stderr for lease in ids)
    assert "give a whole id" in seen.stderr
    assert not seen.stdout


def test_an_unknown_name_brings_near_ones(shell: Shell) -> None:
    """A typing error is answered with what was probably meant."""
    shell.holding("agent", task="issue-16")

    seen = shell.run("why", "isue-16")

    assert seen.returncode == 1
    assert seen.stderr == "headway: nothing is called 'isue-16': did you mean issue-16?\n"


def test_on_an_empty_home_nothing_is_found(shell: Shell) -> None:
    """Where nothing runs, that is the answer."""
    seen = shell.run("why", "x")

    assert seen.returncode == 1
    assert "nothing runs and nobody waits" in seen.stderr
