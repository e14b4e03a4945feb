from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from tests.worker.kit import PROGRAM, until

if TYPE_CHECKING:
    from tests.worker.kit import House

    from headway.views import LeaseView


def test_a_job_runs_and_both_its_streams_are_kept(house: House) -> None:
    """Its code, its end and its output are found afterwards."""
    house.worker()

    ended = house.ended(house.submit("echo out; echo err >&2; exit 3"))

    assert (ended.state, ended.exit_code, ended.end_reason) == ("failed", 3, "exit code 3")
    assert house.output(ended.id) == "out\nerr\n"
    assert ended.attempts == 1


def test_a_job_runs_as_its_submitter_would_have_run_it(house: House) -> None:
    """Arguments, directory, environment and umask are those of the submission."""
    inner = house.directory / "in ner"
    inner.mkdir()
    script = 'printf "%s|" "$@"; pwd; echo "$COLOUR"; umask; cat'
    job = house.keep(
        ["sh", "-c", script, "name", "a b", "", "c\nd"],
        directory=str(inner),
        environ={"COLOUR": "bl ue", "PATH": os.environ["PATH"]},
        umask=0o027,
    ).id
    house.worker()

    house.ended(job)

    assert house.output(job) == f"a b||c\nd|{inner}\nbl ue\n0027\n"


def test_a_job_submitted_inside_a_lease_stands_for_itself(house: House) -> None:
    """It neither borrows from the agent that submitted it nor dies with it."""
    house.governor.set_limit("agent/test", 1)
    house.worker()
    with house.governor.slot("agent/test") as lease:
        job = house.submit("echo ran", environ={**os.environ, **lease.environ()})
        until(lambda: house.jobs.get(job).position == 1, "its place in line")
        until(lambda: house.governor.snapshot().waiting, "its ticket")
        assert house.state(job) == "queued"

    assert house.ended(job).state == "succeeded"


def test_what_a_job_starts_goes_ahead_on_its_slot(house: House) -> None:
    """``headway run`` inside a job does not wait for the job itself."""
    house.governor.set_limit("agent", 1)
    house.worker()

    path = f"{os.path.dirname(PROGRAM)}:{os.environ['PATH']}"
    job = house.submit(
        "headway run --on agent/test -- echo inner", environ={**house.environ, "PATH": path}
    )

    assert house.ended(job).state == "succeeded"
    assert house.output(job) == "inner\n"


def test_a_program_that_is_missing_is_a_failure_with_a_reason(house: House) -> None:
    """It was there when the job was kept; the job has the code that a shell would give."""
    gone, script = house.directory / "gone-program", house.directory / "script"
    for program in (gone, script):
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    first, second = house.keep(["./gone-program"]).id, house.keep([str(script)]).id
    gone.unlink()
    script.chmod(0o644)
    house.worker()

    missing, denied = house.ended(first), house.ended(second)
    nowhere = house.ended(house.submit("true", directory=str(house.directory / "gone")))

    assert (missing.state, missing.exit_code) == ("failed", 127)
    assert missing.end_reason == "./gone-program: no such program"
    assert (denied.state, denied.exit_code) == ("failed", 126)
    assert "gone: No such file or directory" in (nowhere.end_reason or "")


def test_a_script_without_a_first_line_is_run_by_the_shell(house: House) -> None:
    """As every shell does it."""
    script = house.directory / "script"
    script.write_text("echo ran $1\n")
    script.chmod(0o755)
    house.worker()

    job = house.ended(house.keep([str(script), "it"]).id)

    assert house.output(job.id) == "ran it\n"


def test_the_end_by_a_signal_is_told(house: House) -> None:
    """As a shell says it, and in words."""
    house.worker()

    ended = house.ended(house.submit("kill -SEGV $$"))

    assert (ended.exit_code, ended.end_reason) == (128 + signal.SIGSEGV, "ended by SIGSEGV")


def test_signals_are_as_usual_in_a_job(house: House) -> None:
    """Nothing that Headway ignores or blocks for itself is passed on."""
    house.worker()
    job = house.submit("grep -E 'Sig(Blk|Ign)' /proc/self/status")

    house.ended(job)

    _, blocked, _, ignored = house.output(job).split()
    # The C library keeps two signals for itself, and ignores them in what it starts.
    assert (int(blocked, 16), int(ignored, 16) & ~(3 << 31)) == (0, 0)


def test_a_job_has_no_descriptor_of_ours(house: House) -> None:
    """Only its three streams."""
    house.worker()
    job = house.submit("ls /proc/self/fd")

    house.ended(job)

    assert house.output(job).split() == ["0", "1", "2", "3"]  # the last one is ls's own


def test_the_slot_is_held_while_a_job_runs_and_free_when_it_has_ended(house: House) -> None:
    """Whoever sees the result finds the slot free."""
    house.worker()
    for _ in range(5):
        job = house.submit("true")
        house.ended(job)
        assert house.holders() == 0
    house.running(house.submit("sleep 60"))
    assert house.holders() == 1


def test_status_names_the_job_and_its_command(house: House) -> None:
    """The holder is the job's supervisor, and its id leads to the job."""
    house.worker()
    job = house.submit("sleep 60", task="issue-16")
    house.running(job)

    def own() -> list[LeaseView]:
        leases = house.governor.snapshot().leases
        return [lease for lease in leases if lease.holder.pid == house.supervisor(job)]

    (lease,) = until(own, "a lease of its supervisor")

    assert lease.id.endswith(f"-job{job}")
    assert lease.task == "issue-16"
    assert f"job {job}: sh -c sleep 60" in lease.holder.command


def test_what_cannot_be_kept_is_refused_in_words(house: House) -> None:
    """A directory that is gone, and a name that is no text."""
    gone = house.directory / "gone"
    gone.mkdir()

    here = house.run("submit", "--dedupe", "\udcff", "--", "true")
    there = house.run("run", "--", "sh", "-c", f"cd {gone}; rmdir {gone}; {PROGRAM} submit true")

    assert (here.returncode, there.returncode) == (64, 64)
    assert "dedupe must be a name" in here.stderr
    assert "the current directory is gone" in there.stderr
    assert not house.jobs.all()
