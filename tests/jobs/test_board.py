"""Every change of a job's state, one after the other; see ``test_board_races.py`` for the rest."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.jobs.boards import (
    begin,
    column,
    details,
    end,
    expire,
    keep,
    last_revision,
    line,
    open_board,
    order,
    query,
    ready,
    run,
    seen,
)

from headway import clocks
from headway.errors import ConfigError, HeadwayError, NoSuchJob, QueueFull
from headway.jobs import log
from headway.jobs.listing import Listing
from headway.jobs.states import FINISHED, Ending

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headway.jobs.board import Board

UNKNOWN = 77


@pytest.fixture
def boot_clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock of arrivals in seconds, which stands still until the test changes it."""
    now = [1_000.0]
    monkeypatch.setattr(clocks, "boot_seconds", lambda: now[0])
    monkeypatch.setattr(clocks, "boot_microseconds", lambda: int(now[0] * 1e6))
    return now


# -- coming in -----------------------------------------------------------------------------


def test_a_job_is_queued_with_everything_that_was_said(board: Board) -> None:
    """Nothing of an order is lost on its way to the board and back."""
    said = order(
        "agent",
        "--prompt",
        "fix it",
        keys=["llm/openai", "agent/x"],
        task="issue-16",
        priority=7,
        weight=2,
        expire="1h",
        retries=3,
        dedupe="sixteen",
        umask=0o027,
        max_runtime="2h",
    )
    (kept,) = board.submit([said])

    assert (kept.state, kept.is_new) == ("queued", True)
    found = details(board, kept.id)
    assert found.job.command == ("agent", "--prompt", "fix it")
    assert found.job.keys == ("llm/openai", "agent/x")
    assert (found.job.task, found.job.priority, found.job.weight) == ("issue-16", 7, 2)
    assert (found.job.attempts, found.job.started_at, found.job.ended_at) == (0, None, None)
    assert (found.directory, found.umask, found.retries) == ("/", 0o027, 3)
    assert found.dedupe == "sixteen"
    assert found.expire_at is not None
    assert found.expire_at - found.job.submitted_at == pytest.approx(3600)
    assert found.options == {"max_runtime_seconds": 7200.0}


def test_what_is_not_said_comes_from_the_settings(home: Path) -> None:
    """Retries and the time to start have their defaults there, and a job may differ."""
    board = open_board(home, HEADWAY_JOBS_RETRIES="2", HEADWAY_JOBS_EXPIRE="5m")
    plain, other = keep(board), keep(board, retries=0, expire="never")

    assert details(board, plain).retries == 2
    assert column(board, "expire_at - submitted_at", plain) == pytest.approx(300)
    assert details(board, other).retries == 0
    assert details(board, other).expire_at is None


def test_many_are_kept_all_or_none(board: Board) -> None:
    """One that is refused takes the others with it, and uses up no id that people saw."""
    first = keep(board)

    with pytest.raises(NoSuchJob):
        board.submit([order(), order(after=[UNKNOWN]), order()])
    with pytest.raises(ConfigError):
        board.submit([order(), order(max_runtime=5, idle_kill=9)])

    assert line(board) == [first]
    kept = board.submit([order() for _ in range(5)])
    assert line(board) == [first, *(one.id for one in kept)]


def test_who_is_not_admitted_leaves_nothing(board: Board) -> None:
    """The check is part of the transaction."""

    def refuse(_: object) -> None:
        raise HeadwayError("no")

    with pytest.raises(HeadwayError, match="no"):
        board.submit([order()], admit=refuse)

    assert line(board) == []


def test_an_unfinished_job_of_the_same_name_is_the_answer(board: Board) -> None:
    """In every state before its end; after it the name is free again."""
    kept = [board.submit([order(dedupe="x")])[0] for _ in range(2)]
    assert [(one.id, one.state, one.is_new) for one in kept] == [
        (kept[0].id, "queued", True),
        (kept[0].id, "queued", False),
    ]
    number = begin(board, kept[0].id)
    (while_it_runs,) = board.submit([order(dedupe="x")])
    assert (while_it_runs.id, while_it_runs.state) == (kept[0].id, "running")

    end(board, kept[0].id, number)

    held = board.submit([order(dedupe="x", hold=True), order(dedupe="x"), order(dedupe="y")])
    assert [one.is_new for one in held] == [True, False, True]
    assert held[1].id == held[0].id != kept[0].id
    assert held[1].state == "held"


def test_a_finished_job_is_not_queued_again_beside_its_namesake(board: Board) -> None:
    """There is one unfinished job of a name; who wants a second one is told which that is."""
    old = keep(board, dedupe="x")
    run(board, old)
    new = keep(board, dedupe="x")

    with pytest.raises(ConfigError, match=f"job {new}.*'x'"):
        board.retry(old)

    assert seen(board, old).state == "succeeded"
    run(board, new)
    assert board.retry(old) == "queued"


def test_a_full_queue_refuses_by_name(home: Path) -> None:
    """Those that run or have ended do not count; those that are held do."""
    board = open_board(home, HEADWAY_QUEUE_MAX_JOBS="2")
    running, ended = keep(board), keep(board)
    begin(board, running)
    run(board, ended)
    first, _ = keep(board), keep(board, hold=True)

    with pytest.raises(QueueFull, match=r"2 jobs wait, and queue\.max_jobs is 2") as caught:
        keep(board)
    assert (caught.value.waiting, caught.value.max_jobs) == (2, 2)

    board.cancel(first, "to make room")
    with pytest.raises(QueueFull):
        board.submit([order(), order()])
    keep(board)
    assert len(board.wishes("true")) == 5


def test_a_full_queue_still_answers_for_a_job_that_it_has(home: Path) -> None:
    """Nothing is added by that."""
    board = open_board(home, HEADWAY_QUEUE_MAX_JOBS="1")
    first = keep(board, dedupe="x")

    assert keep(board, dedupe="x") == first
    with pytest.raises(QueueFull):
        board.submit([order(dedupe="x"), order()])
    roomy = open_board(home, HEADWAY_QUEUE_MAX_JOBS="2")
    keep(roomy)
    roomy.database.close()
    assert keep(board, dedupe="x") == first


def test_a_full_queue_takes_no_retry_by_hand(home: Path) -> None:
    """But a retry that was promised is kept, because the job was in already."""
    board = open_board(home, HEADWAY_QUEUE_MAX_JOBS="1")
    old = keep(board)
    run(board, old)
    promised = keep(board, retries=1)
    number = begin(board, promised)
    keep(board)

    with pytest.raises(QueueFull):
        board.retry(old)

    assert seen(board, old).state == "succeeded"
    assert end(board, promised, number, "failed") == "queued"


def test_an_id_is_never_given_twice(board: Board) -> None:
    """Also when all jobs were forgotten, or the newest one."""
    used = [keep(board), keep(board)]
    for job in used:
        run(board, job)
    board.archive.prune()
    used.append(keep(board))
    run(board, used[-1])
    board.archive.prune()
    used.append(keep(board))

    assert used == sorted(set(used))


# -- one state after the other ---------------------------------------------------------------


@pytest.mark.parametrize("state", ["succeeded", "failed", "interrupted", "cancelled"])
def test_an_attempt_ends_once_and_its_job_with_it(board: Board, state: str) -> None:
    """Who comes second changes nothing."""
    job = keep(board)
    number = begin(board, job)

    assert board.end(job, number, Ending(state, "why", exit_code=3), holder="holder") == state
    for other in FINISHED:
        assert end(board, job, number, other) is None
    assert board.cancel(job, "too late") is None
    assert board.begin(job, holder="h", lease="l") is None

    found = details(board, job)
    assert (found.job.state, found.job.exit_code, found.job.end_reason) == (state, 3, "why")
    (attempt,) = found.attempts
    assert (attempt.state, attempt.exit_code, attempt.end_reason) == (state, 3, "why")
    assert attempt.ended_at is not None
    assert found.job.ended_at == pytest.approx(attempt.ended_at, abs=10)
    assert board.under_way() == []


def test_a_beginning_has_all_that_its_supervisor_needs(board: Board) -> None:
    """And the board knows who that is."""
    (kept,) = board.submit([order("a", "b c", umask=0o077, environ={"A": "1"}, task="t")])
    beginning = board.begin(kept.id, holder="holder", lease="holder-9")

    assert beginning is not None
    assert (beginning.job, beginning.number, beginning.task) == (kept.id, 1, "t")
    assert beginning.command == ["a", "b c"]
    assert (beginning.directory, beginning.umask) == ("/", 0o077)
    assert (beginning.environ, beginning.options) == ({"A": "1"}, {})
    assert board.under_way() == board.under_way(kept.id) == [(kept.id, 1, "holder")]
    assert board.under_way(kept.id + 1) == []
    assert details(board, kept.id).attempts[0].lease == "holder-9"


def test_what_does_not_wait_cannot_begin(board: Board) -> None:
    """Held, running, ended, waiting for others, or not there at all."""
    held, running = keep(board, hold=True), keep(board)
    begin(board, running)
    later, ended = keep(board, after=[running]), keep(board)
    run(board, ended)

    for job in (held, running, later, ended, UNKNOWN):
        assert board.wish(job) is None
        assert board.begin(job, holder="h", lease="l") is None
    assert board.under_way() == [(running, 1, "holder")]
    assert board.counts_ready() == 0


def test_a_waiting_job_is_cancelled_at_once(board: Board) -> None:
    """With the reason of who did it; the second one has no say."""
    for hold in (False, True):
        job = keep(board, hold=hold)

        assert board.cancel(job, "not needed") == ("held" if hold else "queued")
        assert board.cancel(job, "again") is None

        found = seen(board, job)
        assert (found.state, found.end_reason, found.exit_code) == ("cancelled", "not needed", None)
        assert found.ended_at is not None


def test_a_running_job_is_marked_and_its_supervisor_ends_it(board: Board) -> None:
    """The first reason stays; the state is that of its end."""
    job = keep(board)
    number = begin(board, job)

    assert board.cancel(job, "first") == "running"
    assert board.cancel(job, "second") == "running"
    assert board.wishes(f"id = {job}")[0].cancel_reason == "first"
    assert seen(board, job).state == "running"

    assert end(board, job, number, "cancelled") == "cancelled"


def test_a_cancelled_job_that_was_faster_has_succeeded(board: Board) -> None:
    """What is true is kept."""
    job = keep(board)
    number = begin(board, job)
    board.cancel(job, "stop")

    assert end(board, job, number, "succeeded") == "succeeded"
    assert seen(board, job).state == "succeeded"


def test_a_cancelled_job_whose_supervisor_died_is_cancelled(board: Board) -> None:
    """It is never run again, whatever was promised, and says what people wanted of it."""
    for state, wanted in (("interrupted", "cancelled"), ("failed", "failed")):
        job = keep(board, retries=5)
        number = begin(board, job)
        board.cancel(job, "stop it")

        assert end(board, job, number, state) == wanted
        assert details(board, job).attempts[0].state == state
    assert seen(board, 1).end_reason == "stop it"


def test_whoever_names_an_unknown_job_is_told(board: Board) -> None:
    """By its number."""
    calls: list[Callable[[], object]] = [
        lambda: board.cancel(UNKNOWN, "x"),
        lambda: board.approve(UNKNOWN),
        lambda: board.retry(UNKNOWN),
        lambda: board.move_first(UNKNOWN, before=None),
        lambda: keep(board, after=[UNKNOWN]),
        lambda: seen(board, UNKNOWN),
    ]
    for call in calls:
        with pytest.raises(NoSuchJob, match=f"no job {UNKNOWN}"):
            call()


def test_the_end_is_told_by_the_watchdog_that_made_it(board: Board) -> None:
    """Mechanism, setting, value and last activity stay with the attempt."""
    job = keep(board)
    number = begin(board, job)
    bite = {"mechanism": "m", "setting": "s", "value": "v", "last_activity_at": 5.0}

    ending = Ending("failed", "killed", exit_code=137, ended_by=bite, event="killed")
    ending.output_bytes = 12
    board.end(job, number, ending, holder="holder")

    assert details(board, job).attempts[0].ended_by == bite
    assert details(board, job).attempts[0].output_bytes == 12
    assert Listing(board).attempt_is_over(job, number) == 12


# -- after others ----------------------------------------------------------------------------


def test_success_lets_the_next_one_go(board: Board) -> None:
    """When all that it waits for have succeeded, and not before."""
    first, second = keep(board), keep(board)
    third = keep(board, after=[first, second, first])
    assert ready(board) == [first, second]
    assert details(board, third).after == (first, second)

    run(board, first)
    assert ready(board) == [second]
    assert details(board, third).after == (second,)
    run(board, second)

    assert ready(board) == [third]
    assert board.wish(third) is not None


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("failed", "which failed"),
        ("interrupted", "which was interrupted"),
        ("cancelled", "which was cancelled"),
        ("expired", "which expired"),
    ],
)
def test_failure_cancels_what_comes_after(board: Board, how: str, words: str) -> None:
    """All of it, each with a reason that names the job it waited for; others are not touched."""
    first = keep(board, expire=1)
    second, third = keep(board, after=[first]), keep(board, after=[first], hold=True)
    fourth, other = keep(board, after=[second, third]), keep(board)
    if how == "expired":
        expire(board, 10)
    elif how == "cancelled":
        board.cancel(first, "stop")
    else:
        run(board, first, how)

    assert seen(board, first).state == how
    for job, after in ((second, first), (third, first), (fourth, second)):
        found = seen(board, job)
        assert found.state == "cancelled"
        cause = words if after == first else "which was cancelled"
        assert found.end_reason == f"it was to run after job {after}, {cause}"
    assert ready(board) == [other]
    assert query(board, "select * from dependencies") == []


def test_the_outcome_of_a_finished_job_counts_at_once(board: Board) -> None:
    """Success means no wait, anything else that it will never run."""
    good, bad = keep(board), keep(board)
    run(board, good)
    run(board, bad, "failed")

    kept = board.submit([order(after=[good]), order(after=[good, bad]), order(after=[bad, good])])

    assert [one.state for one in kept] == ["queued", "cancelled", "cancelled"]
    assert ready(board) == [kept[0].id]
    assert seen(board, kept[1].id).end_reason == f"it was to run after job {bad}, which failed"


def test_a_retry_that_was_promised_keeps_the_others_waiting(board: Board) -> None:
    """Only the end of the job decides, not that of an attempt."""
    first = keep(board, retries=1)
    second = keep(board, after=[first])

    assert run(board, first, "failed") == "queued"
    assert seen(board, second).state == "queued"
    assert ready(board) == [first]
    run(board, first)

    assert ready(board) == [second]


def test_a_chain_of_any_length_is_cancelled(board: Board) -> None:
    """Each of thousands waits for the one before."""
    first = keep(board)
    # In one transaction each is known to the next.
    board.submit([order(after=[before]) for before in range(first, first + 1500)])

    board.cancel(first, "stop")

    states = {job.state for job in Listing(board).all()}
    assert states == {"cancelled"}
    last = first + 1500
    assert seen(board, last).end_reason == (
        f"it was to run after job {last - 1}, which was cancelled"
    )


@pytest.mark.parametrize("state", ["succeeded", "failed"])
def test_a_forgotten_job_is_no_obstacle_to_what_it_waited_for(board: Board, state: str) -> None:
    """It was cancelled and pruned while the job before it was still running."""
    first = keep(board)
    number = begin(board, first)
    second = keep(board, after=[first])
    board.cancel(second, "not needed")
    board.archive.prune()

    assert end(board, first, number, state) == state
    assert query(board, "select * from dependencies") == []


def test_a_job_that_has_ended_is_not_touched_by_what_it_waited_for(board: Board) -> None:
    """Its end stays as it was told."""
    first, other = keep(board), keep(board)
    second = keep(board, after=[first, other], notify=["json://x"])
    board.cancel(second, "not needed")
    before, known = seen(board, second), last_revision(board)

    run(board, first)
    run(board, other, "failed")

    assert seen(board, second) == before
    assert {wish.id for wish in board.changed_since(known)} == {first, other}
    assert told(board) == [(second, "queued"), (second, "cancelled")]


def test_a_retried_follower_waits_again_for_what_it_comes_after(board: Board) -> None:
    """A deployment does not run without its build, however often either is retried."""
    build, other = keep(board), keep(board)
    deploy = keep(board, after=[build, other])
    run(board, build, "failed")
    run(board, other)

    with pytest.raises(ConfigError, match=f"which failed; .* headway retry {build} {deploy}"):
        board.retry(deploy)
    assert seen(board, deploy).state == "cancelled"
    assert board.retry(build) == "queued"
    assert board.retry(deploy) == "queued"
    assert details(board, deploy).after == (build,)
    assert ready(board) == [build]
    run(board, build)
    assert ready(board) == [deploy]

    run(board, deploy, "failed")
    assert board.retry(deploy) == "queued"
    assert ready(board) == [deploy]


def test_a_retry_after_a_job_that_was_pruned_depends_on_whether_it_had_run(board: Board) -> None:
    """One that had run had its dependencies; one that had not can never know."""
    build = keep(board)
    ran, waited = keep(board, after=[build]), keep(board, after=[build])
    board.cancel(waited, "not now")
    run(board, build)
    run(board, ran, "failed")
    board.database.change(lambda found: found.execute("delete from jobs where id = ?", (build,)))

    assert board.retry(ran) == "queued"
    with pytest.raises(ConfigError, match=f"job {build}, which was pruned .* submit its command"):
        board.retry(waited)


def test_a_retried_job_of_an_older_version_waits_for_what_was_missing(board: Board) -> None:
    """Such a job has no list of what it comes after, only the rows that were left."""
    build = keep(board)
    deploy = keep(board, after=[build])
    board.database.change(lambda found: found.execute("update jobs set options = '{}'"))
    board.cancel(deploy, "not now")

    assert board.retry(deploy) == "queued"
    assert ready(board) == [build]


# -- hold and approve ------------------------------------------------------------------------


def test_a_held_job_waits_for_its_approval(board: Board) -> None:
    """Then its place is that of its approval."""
    held, later = keep(board, hold=True), keep(board)
    assert seen(board, held).state == "held"
    assert ready(board) == [later]

    assert board.approve(held)
    assert not board.approve(held)

    assert ready(board) == [later, held]


@pytest.mark.parametrize(
    ("approve", "new", "automatic", "by_hand"),
    [
        ("never", "queued", "queued", "queued"),
        ("retries", "queued", "held", "held"),
        ("always", "held", "held", "held"),
    ],
)
def test_the_settings_say_what_needs_approval(
    home: Path, approve: str, new: str, automatic: str, by_hand: str
) -> None:
    """Nothing, a second run, or everything."""
    board = open_board(home, HEADWAY_JOBS_APPROVE=approve)
    (kept,) = board.submit([order(retries=1)])
    assert kept.state == seen(board, kept.id).state == new
    board.approve(kept.id)

    assert run(board, kept.id, "failed") == automatic
    assert seen(board, kept.id).state == automatic
    board.approve(kept.id)
    assert run(board, kept.id, "failed") == "failed"
    assert board.retry(kept.id) == by_hand
    assert seen(board, kept.id).state == by_hand


@pytest.mark.parametrize("approve", ["never", "always"])
def test_an_order_may_say_otherwise(home: Path, approve: str) -> None:
    """``hold`` beats the settings, both ways."""
    board = open_board(home, HEADWAY_JOBS_APPROVE=approve)

    assert seen(board, keep(board, hold=True)).state == "held"
    assert seen(board, keep(board, hold=False)).state == "queued"


def test_approval_does_not_hurry_what_waits_for_others(board: Board) -> None:
    """Both have to come."""
    first = keep(board)
    second = keep(board, after=[first], hold=True)
    board.approve(second)
    assert ready(board) == [first]
    run(board, first)

    assert ready(board) == [second]


# -- again -----------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["failed", "interrupted"])
def test_a_promised_retry_stands_at_the_old_place(board: Board, state: str) -> None:
    """Because it waited for that already; and so often, not more."""
    first, second = keep(board, retries=2), keep(board)

    assert run(board, first, state) == "queued"
    assert line(board) == [first, second]
    assert run(board, first, state) == "queued"
    assert line(board) == [first, second]
    assert run(board, first, state) == state
    assert line(board) == [second]

    found = details(board, first)
    assert [attempt.state for attempt in found.attempts] == [state] * 3
    assert [attempt.number for attempt in found.attempts] == [1, 2, 3]
    assert (found.job.attempts, found.retried) == (3, 2)


@pytest.mark.parametrize("state", ["succeeded", "cancelled"])
def test_what_went_well_or_was_not_wanted_is_not_run_again(board: Board, state: str) -> None:
    """Whatever was promised."""
    job = keep(board, retries=5)

    assert run(board, job, state) == state


def test_a_supervisor_of_another_home_ends_no_attempt_here(board: Board) -> None:
    """A home that is made anew at the same path has jobs of the same numbers."""
    job = keep(board)
    number = begin(board, job)

    assert board.end(job, number, Ending("failed", "not mine"), holder="other") is None

    assert seen(board, job).state == "running"
    assert end(board, job, number) == "succeeded"


@pytest.mark.parametrize("state", FINISHED)
def test_a_finished_job_is_queued_again_at_the_end(board: Board, state: str) -> None:
    """With all its promises, nothing of its old end, and its attempts kept."""
    job = keep(board, retries=1, expire=100)
    if state == "expired":
        expire(board, 200)
    elif state == "cancelled":
        board.cancel(job, "no")
    else:
        while run(board, job, state) == "queued":
            pass
    ran, other = seen(board, job).attempts, keep(board)
    board.archive.mark_read([job])

    assert board.retry(job) == "queued"
    assert board.retry(job) is None

    assert line(board) == [other, job]
    found = details(board, job)
    assert (found.job.state, found.retried, found.cancel_reason) == ("queued", 0, None)
    assert (found.job.ended_at, found.job.exit_code, found.job.end_reason) == (None, None, None)
    assert found.expire_at == pytest.approx(time.time() + 100, abs=30)
    assert len(found.attempts) == ran
    assert run(board, job, "failed") == "queued"
    assert run(board, job, "succeeded") == "succeeded"
    assert seen(board, job).attempts == ran + 2
    assert board.archive.prune().unread == [job]


def test_what_has_not_ended_cannot_be_retried(board: Board) -> None:
    """It is coming anyway."""
    held, queued, running = keep(board, hold=True), keep(board), keep(board)
    begin(board, running)
    before = last_revision(board)

    assert [board.retry(job) for job in (held, queued, running)] == [None, None, None]
    assert last_revision(board) == before


# -- the line --------------------------------------------------------------------------------


def test_the_line_is_fifo_within_a_priority_and_a_priority_is_a_head_start(
    board: Board, boot_clock: list[float]
) -> None:
    """Ten minutes for each step: nobody is overtaken for ever."""
    early, also_early = keep(board), keep(board)
    boot_clock[0] += 599
    favoured, behind = keep(board, priority=1), keep(board, priority=-1)
    boot_clock[0] += 2
    too_late = keep(board, priority=1)

    assert line(board) == [favoured, early, also_early, too_late, behind]


def test_an_arrival_never_goes_back_when_the_clock_does(
    board: Board, boot_clock: list[float]
) -> None:
    """Submits, approvals and retries stay in their order, whatever happens to the clock."""
    held, ended = keep(board, hold=True), keep(board)
    run(board, ended)
    came = [keep(board), keep(board)]
    boot_clock[0] -= 500
    came.append(keep(board))
    board.approve(held)
    came.append(held)
    boot_clock[0] -= 100
    came.append(keep(board))
    board.retry(ended)
    came.append(ended)
    came.append(keep(board))

    assert line(board) == came
    arrivals = [column(board, "arrival", job) for job in came]
    assert arrivals == sorted(set(arrivals))


def test_a_job_that_was_moved_does_not_take_the_time_with_it(
    board: Board, boot_clock: list[float]
) -> None:
    """Who comes after it stands behind all that came before, also when the clock went back."""
    first, second = keep(board), keep(board, priority=-1)
    board.move_first(second, before=None)
    boot_clock[0] -= 500

    assert keep(board) == line(board)[-1]
    assert line(board)[:2] == [second, first]


def test_an_approval_in_a_moment_of_many_is_still_after_those_before(
    board: Board, boot_clock: list[float]
) -> None:
    """Two in the same microsecond keep their order, also against their ids."""
    held = [keep(board, hold=True) for _ in range(3)]
    boot_clock[0] += 1
    for job in held[::-1]:
        board.approve(job)

    assert line(board) == held[::-1]


def test_order_and_age_survive_a_restart_of_the_machine(
    home: Path, boot_clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock begins anew, but who came first is first, and who is older than the rest is too."""
    walltime = [1_000_000.0]
    monkeypatch.setattr(time, "time", lambda: walltime[0])
    before = open_board(home)
    old = keep(before)
    boot_clock[0], walltime[0] = boot_clock[0] + 3_000, walltime[0] + 3_000
    jobs = [keep(before, priority=p) for p in (0, 3, -1, 5, 3)]
    moved = keep(before, priority=1)
    held = keep(before, hold=True)
    before.move_first(moved, before=None)
    wanted, age = line(before), column(before, "arrival", jobs[0]) - column(before, "arrival", old)
    before.database.close()

    monkeypatch.setattr(clocks, "boot_name", lambda: "another")
    boot_clock[0], walltime[0] = 5.0, walltime[0] + 60
    after = open_board(home)

    assert line(after) == wanted
    assert wanted[0] == moved
    arrivals = {job: column(after, "arrival", job) for job in (old, *jobs)}
    assert arrivals[jobs[0]] - arrivals[old] == age
    assert max(arrivals.values()) < 5e6
    assert arrivals[jobs[0]] == pytest.approx(-55e6, abs=1e6)
    newest = keep(after)
    after.approve(held)
    assert [job for job in line(after) if job in (newest, held)] == [newest, held]
    assert line(after).index(newest) > line(after).index(jobs[0])
    for job in (*jobs, moved):
        boost = column(after, "arrival - rank", job)
        assert boost == column(after, "priority", job) * 600_000_000


@pytest.mark.parametrize("is_clock_set_back", [False, True])
def test_nobody_arrives_in_the_future_after_a_restart(
    home: Path,
    boot_clock: list[float],
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_clock_set_back: bool,
) -> None:
    """Neither after jobs that have ended since, nor when the time of day was set back."""
    before = open_board(home)
    waiting, ended, held = keep(before), keep(before), keep(before, hold=True)
    before.approve(held)
    run(before, ended)
    before.database.close()

    monkeypatch.setattr(clocks, "boot_name", lambda: "another")
    boot_clock[0] = 5.0
    if is_clock_set_back:
        monkeypatch.setattr(time, "time", lambda: 1_000.0)
    after = open_board(home)
    new = keep(after)

    assert line(after) == [waiting, held, new]
    assert column(after, "arrival", new) == pytest.approx(5e6, abs=10)
    after.retry(ended)
    assert column(after, "arrival", ended) == pytest.approx(5e6, abs=10)


def test_a_restart_is_noticed_once(
    home: Path, boot_clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who opens the board next finds everything in place."""
    first = open_board(home)
    keep(first)
    first.database.close()
    monkeypatch.setattr(clocks, "boot_name", lambda: "another")
    boot_clock[0] = 5.0
    arrivals = []
    for _ in range(2):
        boot_clock[0] += 1
        board = open_board(home)
        arrivals.append(column(board, "arrival", 1))
        board.database.close()

    assert arrivals[0] == arrivals[1] < 7e6


@pytest.mark.parametrize("priority", [-3, 0, 9])
def test_first_is_before_all_other_jobs(board: Board, priority: int) -> None:
    """Whatever their priorities; the last one moved is first."""
    favoured, job, last = keep(board, priority=50), keep(board, priority=priority), keep(board)

    assert board.move_first(job, before=None)
    assert line(board) == [job, favoured, last]
    assert board.move_first(last, before=None)
    assert board.move_first(last, before=None)

    assert line(board) == [last, job, favoured]
    assert keep(board) == line(board)[-1]


def test_first_is_before_others_that_wait(board: Board) -> None:
    """Who is no job has a rank as well."""
    job, least = keep(board), column(board, "rank", keep(board, priority=100))

    board.move_first(job, before=least - 1_000)
    assert column(board, "rank", job) == least - 1_001
    board.move_first(job, before=least)

    assert column(board, "rank", job) == least - 1_002


def test_only_a_queued_job_can_be_moved(board: Board) -> None:
    """The others stand in no line."""
    held, running, ended = keep(board, hold=True), keep(board), keep(board)
    begin(board, running)
    run(board, ended)

    assert [board.move_first(job, before=None) for job in (held, running, ended)] == [False] * 3


# -- time --------------------------------------------------------------------------------------


def test_a_job_that_has_not_started_in_time_expires(board: Board) -> None:
    """Held or queued; the next time to look is known."""
    queued, held = keep(board, expire=100), keep(board, expire=200, hold=True)
    never = keep(board, expire="never")
    soon = board.seconds_to_expiry()
    assert soon == pytest.approx(100, abs=30)

    assert expire(board, 50) == []
    assert expire(board, 101) == [queued]
    assert expire(board, 101) == []
    then = board.seconds_to_expiry()
    assert then == pytest.approx(200, abs=30)
    assert expire(board, 201) == [held]

    assert board.seconds_to_expiry() is None
    assert seen(board, queued).state == "expired"
    assert seen(board, queued).end_reason == "it had not started 100 s after it was submitted"
    assert ready(board) == [never]


def test_nobody_expires_because_the_time_of_day_was_set(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock that counts does not jump."""
    keep(board, expire=100)
    now = time.time()
    for jump in (1e6, -1e6):
        monkeypatch.setattr(time, "time", lambda jump=jump: now + jump)
        assert board.expire() == []
        assert board.seconds_to_expiry() == pytest.approx(100, abs=30)


def test_the_time_to_start_goes_on_over_a_restart_of_the_machine(
    home: Path, boot_clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the machine was off."""
    walltime = [1_000_000.0]
    monkeypatch.setattr(time, "time", lambda: walltime[0])
    before = open_board(home)
    soon, late, never = keep(before, expire=100), keep(before, expire=500), keep(before, expire=1e6)
    begin(before, never)
    before.database.close()

    monkeypatch.setattr(clocks, "boot_name", lambda: "another")
    boot_clock[0], walltime[0] = 5.0, walltime[0] + 200
    after = open_board(home)

    assert after.expire() == [soon]
    assert after.seconds_to_expiry() == pytest.approx(300)
    boot_clock[0] += 301
    assert after.expire() == [late]
    assert after.seconds_to_expiry() is None
    after.database.close()


def test_what_has_started_once_never_expires(board: Board) -> None:
    """Not while it runs, and not while it waits for another attempt."""
    job = keep(board, expire=1, retries=1)
    number = begin(board, job)
    assert expire(board, 1e6) == []
    end(board, job, number, "failed")

    assert expire(board, 1e6) == []
    assert board.seconds_to_expiry() is None
    assert seen(board, job).state == "queued"


# -- forgetting --------------------------------------------------------------------------------


def test_finished_jobs_are_forgotten_with_all_they_had(home: Path, board: Board) -> None:
    """Attempts, environment, news and logs; the unfinished stay as they are."""
    done = keep(board, environ={"SECRET": "1"}, notify=["json://x"], retries=1)
    run(board, done, "failed")
    run(board, done, "failed")
    unfinished = [keep(board), keep(board, hold=True), keep(board)]
    begin(board, unfinished[0])
    for number in (1, 2):
        writer = log.LogWriter(log.path_of(str(home), done, number), 100)
        writer.write(b"x" * 1000)
        writer.close()

    pruned = board.archive.prune()
    pruned.remove_logs(str(home))

    assert pruned.rows == [(done, 2, 0)]
    assert [wish.id for wish in board.wishes("true")] == unfinished
    assert query(board, "select distinct job from attempts") == [(unfinished[0],)]
    assert query(board, "select job from news") == []
    assert query(board, "select variables from environments") == [(b"LANG=C",)]
    assert list((home / "logs").iterdir()) == []
    assert board.archive.prune().rows == []
    with pytest.raises(NoSuchJob):
        seen(board, done)


def test_age_and_number_decide_what_is_forgotten(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older than a time, or beyond the newest so many; by their ends and not by their ids."""
    jobs = [keep(board) for _ in range(5)]
    for at, job in enumerate(jobs[::-1]):
        monkeypatch.setattr(time, "time", lambda at=at: 1_000.0 + at)
        run(board, job)

    assert [job for job, _, _ in board.archive.prune(ended_before=1_000.5).rows] == [jobs[4]]
    assert [job for job, _, _ in board.archive.prune(keep=3).rows] == [jobs[3]]
    assert board.archive.prune(ended_before=900, keep=10).rows == []
    both = board.archive.prune(ended_before=1_003.5, keep=2)
    assert [job for job, _, _ in both.rows] == [jobs[1], jobs[2]]
    assert [job for job, _, _ in board.archive.prune(keep=0).rows] == [jobs[0]]


def test_what_somebody_has_seen_is_not_unread(board: Board) -> None:
    """Seen means: its end was seen."""
    jobs = [keep(board) for _ in range(3)]
    board.archive.mark_read(jobs)
    for job in jobs:
        run(board, job)
    board.archive.mark_read([])
    board.archive.mark_read([jobs[0], UNKNOWN])

    pruned = board.archive.prune()

    assert pruned.unread == jobs[1:]


def test_what_was_dropped_unread_is_told_once(board: Board) -> None:
    """At most the newest hundred."""
    assert board.archive.take_dropped() == []
    board.archive.note_dropped([3, 4])
    board.archive.note_dropped([9])

    assert board.archive.take_dropped() == [3, 4, 9]
    assert board.archive.take_dropped() == []

    board.archive.note_dropped(list(range(1, 151)))
    board.archive.note_dropped([200])
    assert board.archive.take_dropped() == [*range(52, 151), 200]


def test_looking_for_what_was_dropped_makes_no_board(home: Path) -> None:
    """Nobody has kept a job here."""
    assert open_board(home).archive.take_dropped() == []
    assert not home.exists()


# -- telling people --------------------------------------------------------------------------


def told(board: Board) -> list[tuple[int | None, str]]:
    """What people are to be told, in order."""
    return [(job, event) for _, job, event, _, _ in board.news.unsent()]


def test_nobody_is_told_if_nobody_wants_to_be(board: Board) -> None:
    """And nothing is written for that."""
    run(board, keep(board), "failed")
    board.warn(1, "careful")
    board.news.tell_if_empty()

    assert board.news.unsent() == []


def test_news_of_a_job_are_kept_in_order_until_they_were_sent(board: Board) -> None:
    """Of the job that has somebody to be told, and not of others."""
    job, other = keep(board, notify=["json://x"], retries=1), keep(board)
    run(board, job, "failed")
    number = begin(board, job)
    board.warn(job, "careful")
    killed = Ending("failed", "killed", ended_by={"mechanism": "m"}, event="killed")
    board.end(job, number, killed, holder="holder")
    run(board, other)

    wanted = ["queued", "started", "queued", "started", "warned", "killed"]
    assert told(board) == [(job, event) for event in wanted]
    assert [row[4] for row in board.news.unsent()] == [
        "",
        "",
        "to be retried",
        "",
        "careful",
        "killed",
    ]

    board.news.drop(board.news.unsent()[0][0])
    assert [event for _, event in told(board)] == wanted[1:]


@pytest.mark.parametrize(
    "setting", ["HEADWAY_JOBS_NOTIFY=json://x", "HEADWAY_JOBS_NOTIFY_COMMAND=cat"]
)
def test_the_settings_want_news_of_every_job(home: Path, setting: str) -> None:
    """Each end has its own word; and the last one that the queue is empty."""
    name, _, value = setting.partition("=")
    board = open_board(home, **{name: value})
    good, bad, lost = keep(board), keep(board), keep(board)
    gone, late = keep(board), keep(board, expire=5)
    run(board, good)
    run(board, bad, "failed")
    run(board, lost, "interrupted")
    board.cancel(gone, "no")
    board.news.tell_if_empty()
    expire(board, 10)
    board.news.tell_if_empty()

    ends = [(job, event) for job, event in told(board) if event not in ("queued", "started")]
    assert ends == [
        (good, "finished"),
        (bad, "failed"),
        (lost, "interrupted"),
        (gone, "cancelled"),
        (late, "expired"),
        (None, "empty"),
    ]


# -- how the worker hears of it ----------------------------------------------------------------


def test_every_change_has_a_greater_number_than_all_before(board: Board) -> None:
    """Who has seen a number sees all that came after it, also when jobs were forgotten since."""
    jobs = [keep(board, retries=1) for _ in range(3)]
    held, after = keep(board, hold=True), keep(board, after=jobs[:1])

    def change_and_look(*changed: int, work: Callable[[], Any]) -> None:
        before = known[0]
        work()
        news = board.changed_since(before)
        assert sorted({wish.id for wish in news}) == sorted(changed)
        numbers = [wish.revision for wish in news]
        assert numbers == sorted(set(numbers))
        known[0] = numbers[-1]

    known = [last_revision(board)]
    first, second, third = jobs
    change_and_look(first, work=lambda: begin(board, first))
    change_and_look(first, after, work=lambda: end(board, first, 1))
    change_and_look(second, work=lambda: begin(board, second))
    change_and_look(second, work=lambda: end(board, second, 1, "failed"))
    change_and_look(second, work=lambda: run(board, second, "failed"))
    change_and_look(held, work=lambda: board.approve(held))
    change_and_look(third, work=lambda: board.move_first(third, before=None))
    change_and_look(third, work=lambda: begin(board, third))
    change_and_look(third, work=lambda: board.cancel(third, "x"))
    change_and_look(third, work=lambda: end(board, third, 1, "cancelled"))
    change_and_look(third, work=lambda: board.retry(third))
    change_and_look(held, after, third, work=lambda: expire(board, 1e7))


@pytest.mark.parametrize("count", [1, 3])
def test_what_comes_after_a_prune_is_seen_by_who_looked_before(board: Board, count: int) -> None:
    """The numbers do not go back with the jobs that had them."""
    for job in [keep(board) for _ in range(3)]:
        run(board, job)
    known = last_revision(board)
    board.archive.prune(keep=3 - count)

    job = keep(board)
    assert [wish.id for wish in board.changed_since(known)] == [job]
    known = last_revision(board)
    run(board, job)
    board.archive.prune()
    board.archive.prune()

    job = keep(board)
    assert [wish.id for wish in board.changed_since(known)] == [job]
