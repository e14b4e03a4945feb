"""The commands that people manage jobs with: what they print, and their exit codes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.worker.kit import PROGRAM, until

if TYPE_CHECKING:
    from tests.worker.kit import House


def test_submit_says_where_the_job_stands(house: House) -> None:
    """On one line for people, as JSON, or as a bare number."""
    house.governor.set_limit("agent", 1)
    said = [
        house.run("submit", "--no-start", *words, "--", "true").stdout
        for words in ([], [], ["--json"], ["-q"], ["--hold"])
    ]

    assert said[0] == "queued as 1, position 1, starts now\n"
    assert said[1] == "queued as 2, position 2\n"
    facts = json.loads(said[2])
    assert (facts["id"], facts["state"], facts["position"], facts["is_new"]) == (
        3,
        "queued",
        3,
        True,
    )
    assert said[3] == "4\n"
    assert said[4] == "held as 5 until you approve it: headway approve 5\n"


def test_submit_says_what_a_job_comes_after(house: House) -> None:
    """It has no place in line before that."""
    house.run("submit", "--no-start", "--", "true")
    house.run("submit", "--no-start", "--", "true")

    said = house.run("submit", "--no-start", "--after", "1", "--after", "2", "--", "true").stdout

    assert said == "queued as 3, after job 1 and job 2\n"


def test_submit_tells_of_a_job_that_was_there(house: House) -> None:
    """And how long the wait may be, when that can be told."""
    with house.governor.slot("agent/true"):
        pass
    words = ["submit", "--no-start", "--dedupe", "nightly", "--", "true"]
    house.run("submit", "--no-start", "--", "true")
    assert house.run(*words).stdout.startswith("queued as 2, position 2, about ")
    assert house.run(*words).stdout.startswith("already queued as 2, position 2, about ")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--", "no-such-program"], 127, "no-such-program: no such program"),
        (["--after", "77", "--", "true"], 1, "there is no job 77"),
        (["--idle-warn", "5m", "--idle-kill", "1m", "--", "true"], 64, "watchdog.idle_kill"),
        (["--when-full", "hope", "--", "true"], 64, "--when-full must be one of"),
        (["--frobnicate", "--", "true"], 64, "there is no option --frobnicate"),
        ([], 64, "what shall be run?"),
    ],
)
def test_what_cannot_be_submitted_is_refused(
    house: House, words: list[str], code: int, said: str
) -> None:
    """With the code that fits, and nothing is kept."""
    refused = house.run("submit", "--no-start", *words)

    assert (refused.returncode, refused.stdout) == (code, "")
    assert said in refused.stderr
    assert not house.jobs.all()


def test_a_full_board_refuses(house: House) -> None:
    """Naming the setting that bounds it."""
    (house.home / "config.toml").write_text("[queue]\nmax_jobs = 2\n")
    for _ in range(2):
        assert house.run("submit", "--no-start", "--", "true").returncode == 0

    refused = house.run("submit", "--no-start", "--", "true")

    assert refused.returncode == 75
    assert "the job queue is full: 2 jobs wait, and queue.max_jobs is 2" in refused.stderr


def test_the_list_shows_what_ended_what_runs_and_what_waits(house: House) -> None:
    """In that order, and tells a planner what to do."""
    house.governor.set_limit("agent", 1)
    house.worker()
    house.ended(house.submit("exit 3", task="first"))
    running = house.submit("sleep 600", task="second")
    house.running(running)
    house.submit("true", task="third")
    house.submit("true", task="fourth", hold=True)
    until(lambda: house.governor.snapshot().waiting, "a wait")

    lines = house.run("jobs").stdout.splitlines()

    assert lines[0].split()[:3] == ["JOB", "STATE", "CODE"]
    assert [line.split()[1] for line in lines[1:5]] == ["failed", "running", "held", "queued"]
    assert lines[1].split()[2] == "3"
    assert lines[5].startswith("agent: 0 free, 1 in use, 1 waiting, next in ~")
    assert lines[5].endswith(": full, stop delegating")
    assert house.run("jobs", "--state", "failed").stdout.count("\n") == 2
    summary = json.loads(house.run("jobs", "--summary", "--json").stdout)
    assert {k: v for k, v in summary["jobs"].items() if v} == {
        "failed": 1,
        "running": 1,
        "held": 1,
        "queued": 1,
    }
    assert [one["pressure"] for one in summary["capacity"] if one["key"] == "agent"] == ["full"]


def test_a_long_list_is_cut_and_says_so(house: House) -> None:
    """All of it with --all."""
    for _ in range(35):
        house.submit("true")

    lines = house.run("jobs").stdout.splitlines()

    assert "… and 5 more that are queued (--all)" in lines
    assert len(house.run("jobs", "--all").stdout.splitlines()) == 37
    assert house.run("jobs", "--state", "running").stdout == "No jobs.\n"


def test_dropped_jobs_that_nobody_saw_are_mentioned_once(house: House) -> None:
    """In the next list."""
    (house.home / "config.toml").write_text("[jobs]\nkeep_count = 1\n")
    for job in [house.submit("true") for _ in range(3)]:
        house.jobs.board.cancel(job, "not needed")
    house.worker()
    until(
        lambda: (
            len(
                house.jobs.board.database.read(
                    lambda found: found.execute("select id from jobs").fetchall()
                )
            )
            == 1
        ),
        "the pruning",
    )

    first, second = house.run("jobs"), house.run("jobs")

    assert "dropped after jobs.keep, and nobody had looked at them: 1, 2" in first.stderr
    assert "dropped" not in second.stderr


def test_show_tells_everything_but_the_environment(house: House) -> None:
    """Attempts, reasons, what it waits for."""
    house.worker()
    first = house.submit("echo $SECRET >&2; exit 2", retries=1, environ={"SECRET": "hunter2"})
    house.ended(first)
    second = house.submit("true", after=[house.submit("true", hold=True)], max_runtime="2h")

    shown = house.run("show", str(first)).stdout

    assert f"Job {first}: failed" in shown
    assert "retries    1 of 1 used" in shown
    assert shown.count("ran        under 1 s: exit code 2") == 2
    assert "Attempt 2: failed, exit code 2" in shown
    assert f"{first}.2.log, 8B written" in shown
    facts = json.loads(house.run("show", str(second), "--json").stdout)
    assert (facts["after"], facts["options"]) == ([second - 1], {"max_runtime_seconds": 7200.0})
    assert "\n  watchdogs  max runtime 2 h 0 min\n" in house.run("show", str(second)).stdout
    for words in (["show", str(first), "--json"], ["show", str(first)], ["jobs", "--json"]):
        assert "hunter2" not in house.run(*words).stdout


def test_logs_print_what_was_written(house: House) -> None:
    """Of the last attempt, or of another; and say if there is nothing yet."""
    waiting = house.submit("true")
    early = house.run("logs", str(waiting))
    assert (early.returncode, early.stdout) == (1, "")
    assert f"job {waiting} is queued; it has not run yet" in early.stderr
    house.worker()
    job = house.submit("echo $HEADWAY_JOB; exit 1", retries=1)
    house.ended(job)

    assert house.run("logs", str(job)).stdout == f"{job}.2\n"
    assert house.run("logs", str(job), "--attempt", "1").stdout == f"{job}.1\n"
    assert "had 2 attempts" in house.run("logs", str(job), "--attempt", "3").stderr


def test_logs_can_be_followed_from_before_the_start(house: House) -> None:
    """Until the end, which is told."""
    job = house.submit("echo one; until test -e go; do sleep 0.01; done; echo two; exit 4")
    with subprocess.Popen(
        [PROGRAM, "logs", "-f", str(job)],
        env=house.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as follower:
        assert follower.stdout is not None
        assert follower.stderr is not None
        assert "is queued; waiting for it to start" in follower.stderr.readline()
        house.worker()
        assert follower.stdout.readline() == "one\n"
        (house.directory / "go").touch()
        assert follower.stdout.readline() == "two\n"
        assert f"job {job} failed" in follower.stderr.readline()
        assert follower.wait() == 0


def test_who_stops_reading_ends_the_following(house: House) -> None:
    """``logs -f | head`` is no error."""
    house.worker()
    job = house.submit("while :; do echo line; sleep 0.01; done")
    house.running(job)
    seen = subprocess.run(
        ["sh", "-c", f"'{PROGRAM}' logs -f {job} | head -n 1"],
        env=house.environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (seen.stdout, seen.stderr) == ("line\n", "")


def test_wait_answers_with_the_codes_of_jobs(house: House) -> None:
    """The first that is not 0, in the order given; and what stands for an end without one."""
    house.worker()
    good, bad, worse = (house.submit(f"exit {code}") for code in (0, 3, 4))
    cancelled = house.submit("true", hold=True)
    house.jobs.cancel(cancelled)
    expired = house.submit("true", hold=True, expire="1ms")

    codes = [
        house.run("wait", *map(str, jobs)).returncode
        for jobs in ([good], [good, worse, bad], [cancelled], [expired])
    ]

    assert codes == [0, 4, 125, 124]
    held = house.submit("true", hold=True)
    late = house.run("wait", str(held), "--timeout", "10ms")
    assert late.returncode == 124
    assert f"job {held} has not ended yet" in late.stderr


def test_ctrl_c_stops_the_waiting_and_not_the_job(house: House) -> None:
    """And says how to end that."""
    job = house.submit("true", hold=True)
    with subprocess.Popen(
        [PROGRAM, "wait", str(job)], env=house.environ, stderr=subprocess.PIPE, text=True
    ) as waiting:
        until(lambda: list((house.home / "bells").glob(f"{job}.*")), "its bell")
        waiting.send_signal(signal.SIGINT)
        assert waiting.stderr is not None
        assert f"job {job} goes on without us" in waiting.stderr.read()
        assert waiting.wait() == 130
    assert house.state(job) == "held"


def test_retry_approve_move_and_prune_say_what_they_did(house: House) -> None:
    """Or why not, with exit code 1."""
    ended = house.submit("true")
    house.jobs.cancel(ended)
    held = house.submit("true", hold=True)
    queued = house.submit("true")

    def does(*words: str) -> tuple[int, str]:
        done = house.run(*words)
        return done.returncode, done.stdout or done.stderr

    house.governor.pause("agent")
    house.worker()
    assert does("move", str(queued), "--first") == (0, f"job {queued} is next\n")
    assert does("move", str(held), "--first")[0] == 1
    assert does("move", str(queued))[0] == 64
    assert does("approve", str(held)) == (0, f"job {held} queued\n")
    assert does("approve", str(held)) == (
        1,
        f"headway: job {held} is not held, it is queued\n",
    )
    assert does("retry", str(ended)) == (0, f"job {ended} queued again\n")
    assert does("retry", str(ended))[0] == 1
    assert does("prune") == (0, "0 jobs forgotten\n")
    house.jobs.cancel(ended)
    assert does("prune", "--older-than", "1h") == (0, "0 jobs forgotten\n")
    assert does("prune") == (0, "0 jobs forgotten\n")
    assert does("prune", "--keep", "0", "--dry-run") == (
        0,
        f"1 job would be forgotten: {ended}\n",
    )
    assert does("prune", "--keep", "0") == (0, "1 job forgotten\n")
    assert does("show", str(ended)) == (
        1,
        f"headway: there is no job {ended}; see: headway jobs\n",
    )


def test_retry_names_the_job_that_has_to_be_retried_first(house: House) -> None:
    """A job that comes after a failed one is refused with the command that queues both."""
    house.governor.pause("agent")
    house.worker()
    build = house.submit("exit 1")
    deploy = house.submit("true", after=[build])
    house.jobs.cancel(build)

    refused = house.run("retry", str(deploy))
    both = house.run("retry", str(build), str(deploy))

    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"headway retry {build} {deploy}" in refused.stderr
    assert (
        both.stdout == f"job {build} queued again\njob {deploy} queued again, after job {build}\n"
    )


def test_a_job_that_waits_for_its_retry_says_so_everywhere(house: House) -> None:
    """Until when, and how to run it now; and it is run then, by the worker that waits for it."""
    house.worker("--idle-exit", "1ms")
    job = house.submit("test $HEADWAY_JOB = 1.2", retries=1, retry_delay="1h", retry_on=[1])
    until(lambda: house.jobs.get(job).retry_at, "the delay")

    assert re.search(r"is retried in (59|60) min", house.run("why", str(job)).stdout)
    shown = house.run("show", str(job)).stdout
    assert re.search(r"retries    1 of 1 used, the next in (59|60) min", shown)
    assert re.search(r"~(59|60)m", house.run("jobs").stdout)
    assert "agent: to be retried" in house.run("queue").stdout
    facts = json.loads(house.run("jobs", "--json").stdout)[0]
    assert facts["blocked_by"] == {"key": None, "reason": "retry_delay"}
    assert facts["retry_at"] == pytest.approx(facts["started_at"] + 3600, abs=60)

    assert house.run("retry", str(job)).stdout == f"job {job} queued again\n"

    assert house.ended(job).state == "succeeded"


def test_a_worker_wakes_up_for_a_retry(house: House) -> None:
    """Neither before its time nor a minute later."""
    house.worker("--idle-exit", "1ms")
    job = house.submit("date +%s.%N >> times; exit 1", retries=2, retry_delay="500ms")

    assert house.ended(job).state == "failed"

    first, second, third = map(float, (house.directory / "times").read_text().split())
    assert second - first >= 0.5
    assert third - second >= 1.0
    assert third - first < 20


def test_cancel_takes_numbers_tasks_and_ticket_ids(house: House) -> None:
    """Whatever people have at hand."""
    house.governor.set_limit("agent", 1)
    house.worker()
    with house.governor.slot("agent/other"):
        jobs = [house.submit("true", task=f"t{number}") for number in range(3)]
        until(lambda: len(house.governor.snapshot().waiting) == 3, "their places")
        ticket = house.governor.snapshot().waiting[2].id

        said = house.run("cancel", str(jobs[0]), "t1", ticket)

    assert said.returncode == 0
    assert said.stdout.splitlines() == [f"job {job} cancelled; it was queued" for job in jobs]
    again = house.run("cancel", str(jobs[0]))
    assert again.returncode == 1
    assert f"job {jobs[0]} has ended already: cancelled" in again.stderr


def test_why_explains_every_state(house: House) -> None:
    """And what can be done about it."""
    house.governor.set_limit("agent", 1)
    lonely = house.submit("until test -e go; do sleep 0.01; done")
    assert "no worker runs" in house.run("why", str(lonely)).stdout
    held = house.submit("true", hold=True)
    assert "until somebody approves it" in house.run("why", str(held)).stdout
    after = house.submit("true", after=[held])
    assert f"  {held}: held" in house.run("why", str(after)).stdout
    house.worker()
    house.running(lonely)
    assert "What you can do:" in house.run("why", str(lonely)).stdout
    waiting = house.submit("true")
    until(lambda: house.governor.snapshot().waiting, "its wait")
    assert "because    agent is full, 1 of 1 in use" in house.run("why", str(waiting)).stdout
    (house.directory / "go").touch()
    house.ended(waiting)
    assert house.run("why", str(waiting)).stdout.startswith(f"Job {waiting} succeeded after")
    assert house.run("why", "999").returncode == 1


def test_the_queue_shows_jobs_beside_everyone_else(house: House) -> None:
    """With their commands, and with the reason if no worker asks for them."""
    first, second = house.submit("true"), house.submit("true", after=[1])

    alone = house.run("queue").stdout

    assert "agent: no worker" in alone
    assert f"job{first}" in alone
    assert "after other jobs" in alone
    house.governor.set_limit("agent", 1)
    with house.governor.slot("agent/other"):
        house.worker()
        until(lambda: house.governor.snapshot().waiting, "its place")
        lines = house.run("queue").stdout.splitlines()
        assert lines[0].startswith("agent: full, 1/1 in use, 1 waiting")
        assert lines[2].endswith(f"job {first}: sh -c true")
    house.ended(second)


def test_what_was_said_for_one_job_is_shown_with_units(house: House) -> None:
    """In line with the rest."""
    options = {"idle_kill": "off", "max_output": "5MB", "max_runtime": 90, "notify_on": ["failed"]}
    job = house.submit("true", **options)

    shown = house.run("show", str(job)).stdout

    assert "\n  watchdogs  max runtime 90 s, idle kill off, max output 5MB\n" in shown
    assert "\n  notify on  failed\n" in shown


@pytest.mark.parametrize(
    "script", ["true", "echo > started; until test -e go; do sleep 0.01; done"]
)
def test_only_a_worker_with_a_job_is_said_to_finish_it(house: House, script: str) -> None:
    """One that has nothing to do has nothing to finish."""
    worker = house.worker()
    job = house.submit(script)
    is_long = script != "true"
    if is_long:
        house.file("started")
    else:
        house.ended(job)
    with subprocess.Popen(
        [PROGRAM, "worker", "stop"], env=house.environ, stderr=subprocess.PIPE, text=True
    ) as stop:
        assert stop.stderr is not None
        told = stop.stderr.readline()
        (house.directory / "go").touch()

    said = f"headway: worker {worker.pid} finishes what runs; --now would end it\n"
    assert told == (said if is_long else "")


def test_the_worker_drops_environments_that_no_retry_needs(house: House) -> None:
    """After ``jobs.retry_within`` nothing of them is left, and a retry says so."""
    first = house.worker()
    job = house.submit("exit 3", environ={**os.environ, "TOKEN": "hunter2-hunter2"})
    assert house.ended(job).state == "failed"
    first.terminate()
    first.wait()

    house.worker(env={"HEADWAY_JOBS_RETRY_WITHIN": "1ms"})

    files = list(house.home.glob("jobs.db*"))
    until(lambda: not any(b"hunter2" in path.read_bytes() for path in files), "their end")
    refused = house.run("retry", str(job))
    assert refused.returncode == 1
    assert f"job {job} cannot be retried any more" in refused.stderr
    assert house.run("show", str(job)).returncode == 0
