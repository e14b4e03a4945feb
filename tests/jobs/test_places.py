"""Where jobs stand in line, among each other and among everyone else who waits."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from tests.jobs.boards import begin, order
from tests.slots.support import Held, Worker, is_waiting, ticket_of, until

from headway import AtCapacity, Governor
from headway.jobs import places

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from headway.jobs.places import Standing

KEYS = ("agent/a", "agent/b", "llm/x/y", "llm/x/z", "free")


class Place:
    """A home with limits, jobs that wait without a worker, and others who do."""

    def __init__(self, home: Path, limits: dict[str, Any]) -> None:
        home.mkdir(mode=0o700)
        lines = "".join(f'"{key}" = {slots}\n' for key, slots in limits.items())
        (home / "config.toml").write_text(f"[limits]\n{lines}")
        self.governor = Governor()
        self.jobs = self.governor.jobs
        self.store = self.governor.turnstile.store
        self._waiting: list[Worker[None]] = []
        self._held: list[Held] = []

    def keep(self, *keys: str, **options: Any) -> int:
        """Queue a job on these keys."""
        return self.jobs.submit_many([order(keys=keys, **options)], start=False)[0].id

    def hold(self, *keys: str, **options: Any) -> Held:
        """Somebody else has slots."""
        self._held.append(Held(self.governor, *keys, **options))
        return self._held[-1]

    def wait(self, task: str, *keys: str, **options: Any) -> None:
        """Somebody else stands in line."""

        def stand() -> None:
            with self.governor.slot(*keys, task=task, **options):
                pass

        self._waiting.append(Worker(stand))
        until(lambda: is_waiting(self.governor, task))

    def leave(self, task: str) -> None:
        """They do not want it any more."""
        self.governor.cancel(ticket_of(self.governor, task))
        until(lambda: not is_waiting(self.governor, task))

    def where(self, job: int) -> tuple[str | None, str, int]:
        """The key at which a job stands, why, and its position."""
        standing = self.jobs.standing(job)
        assert standing is not None
        return standing.key, standing.reason, standing.position

    def is_full(self, *keys: str, weight: int = 1) -> str | None:
        """The key on which a new job would have to wait."""
        new = order(keys=keys, weight=weight)

        def look(connection: Any) -> str | None:
            state = places.is_full(connection, self.store, new.path, new.weight)
            return None if state is None else state.key

        return self.jobs.board.database.read(look)

    def close(self) -> None:
        for held in self._held:
            held.let_go()
        self.governor.close()
        for waiting in self._waiting:
            waiting.end()


@pytest.fixture
def place(home: Path) -> Iterator[Callable[..., Place]]:
    """Makes a home with these limits."""
    made: list[Place] = []

    def make(**limits: Any) -> Place:
        made.append(Place(home, {key.replace("__", "/"): n for key, n in limits.items()}))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_where_there_is_room_a_job_starts_at_once(place: Callable[..., Place]) -> None:
    """No key blocks it, and there is nothing to wait for."""
    here = place(agent=2)
    job = here.jobs.submit_many([order(keys=["agent/a"])], start=False)[0]

    assert here.where(job.id) == (None, "", 1)
    assert (job.position, job.estimated_wait_seconds) == (1, 0.0)


def test_a_full_key_blocks_those_who_need_it(place: Callable[..., Place]) -> None:
    """In their order, on the key or an ancestor of it; another key does not concern them."""
    here = place(agent=1, llm=1)
    here.hold("agent/a")
    first, second = here.keep("agent/b"), here.keep("agent/a")
    other, both = here.keep("llm/x"), here.keep("agent/c", "llm/y")

    assert here.where(first) == ("agent", "full", 1)
    assert here.where(second) == ("agent", "full", 2)
    assert here.where(other) == (None, "", 1)
    assert here.where(both) == ("agent", "full", 3)


def test_others_who_wait_count_if_they_came_before(place: Callable[..., Place]) -> None:
    """Jobs and everyone else stand in one line."""
    here = place(agent=1)
    here.hold("agent/a")
    here.wait("before", "agent/x")
    job = here.keep("agent/b")
    here.wait("after", "agent/x")
    last = here.keep("agent/b")
    assert [here.where(one)[2] for one in (job, last)] == [2, 4]

    here.wait("favoured", "agent/x", priority=5)
    assert [here.where(one)[2] for one in (job, last)] == [3, 5]
    here.leave("before")
    assert [here.where(one)[2] for one in (job, last)] == [2, 4]
    here.jobs.move_first(last)

    assert [here.where(one)[2] for one in (last, job)] == [1, 3]


def test_only_those_that_are_ready_stand_in_line(place: Callable[..., Place]) -> None:
    """Not the held, the running, the ended, and those that wait for another job."""
    here = place(agent=1)
    here.hold("agent/a")
    running, held, ended = here.keep("agent/b"), here.keep("agent/b", hold=True), here.keep("b")
    later = here.keep("agent/b", after=[held])
    begin(here.jobs.board, running)
    here.jobs.board.cancel(ended, "no")
    last = here.keep("agent/b")

    assert [here.jobs.standing(job) for job in (running, held, ended, later, 99)] == [None] * 5
    assert here.where(last) == ("agent", "full", 1)
    assert set(places.standings(here.store, here.jobs.board)) == {last}


@pytest.mark.parametrize("is_held", [False, True])
def test_a_paused_key_says_so(place: Callable[..., Place], *, is_held: bool) -> None:
    """Nobody can tell how long that takes."""
    here = place(agent=1)
    if is_held:
        here.hold("agent/a")
    here.governor.pause("agent")
    job = here.keep("agent/b")

    assert here.where(job) == ("agent", "paused", 1)
    standing = here.jobs.standing(job)
    assert standing is not None
    assert standing.estimated_wait_seconds is None
    here.governor.resume("agent")
    assert here.where(job)[1] == ("full" if is_held else "")


def test_a_cool_down_and_a_spent_budget_say_so(place: Callable[..., Place]) -> None:
    """The reason is that of the key, and so is the end, as far as time brings it."""
    here = place(agent=1)
    here.governor.set_limit("llm/y", {"requests_per_minute": 2})
    jobs = [here.keep("llm/x/m"), here.keep("llm/y"), here.keep("llm/y")]
    assert [here.where(job)[:2] for job in jobs[:2]] == [(None, "")] * 2
    here.governor.cool_down("llm/x", 100)
    for _ in range(2):
        with here.governor.slot("llm/y"):
            pass

    assert [here.where(job) for job in jobs] == [
        ("llm/x", "cooling", 1),
        ("llm/y", "budget", 1),
        ("llm/y", "budget", 2),
    ]
    cooling, first, second = (here.jobs.get(job).estimated_wait_seconds for job in jobs)
    assert cooling == pytest.approx(105, abs=6)
    assert first == pytest.approx(61, abs=5)
    assert second == pytest.approx(61 + 30.5, abs=5)
    assert [here.is_full(key) for key in ("llm/x/m", "llm/y", "llm/z")] == ["llm/x", "llm/y", None]


def test_the_estimate_is_what_others_took(place: Callable[..., Place]) -> None:
    """As long as nobody has ended it is not known; then it grows with the position."""
    here = place(agent=2)
    held = [here.hold("agent/a"), here.hold("agent/a")]
    jobs = [here.keep("agent/b") for _ in range(3)]
    assert [job.estimated_wait_seconds for job in here.jobs.all()] == [None] * 3

    held.pop().let_go()
    here._held.remove(here._held[1])
    here.hold("agent/a")
    (usual,) = [state.hold_seconds for state in here.store.survey(["agent"])]

    assert usual is not None
    found = [here.jobs.get(job).estimated_wait_seconds for job in jobs]
    assert found == [pytest.approx(usual * position / 2) for position in (1, 2, 3)]


def test_a_heavy_job_waits_for_enough_room(place: Callable[..., Place]) -> None:
    """One slot is free, but it needs two."""
    here = place(agent=2)
    here.hold("agent/a")
    heavy = here.keep("agent/b", weight=2)

    assert here.where(heavy) == ("agent", "full", 1)


def same(one: Standing | None, other: Standing | None) -> bool:
    """Whether two looks found the same."""
    names = ("key", "reason", "position", "estimated_wait_seconds")
    return [getattr(one, name) for name in names] == [getattr(other, name) for name in names]


@pytest.mark.parametrize("seed", range(4))
def test_one_walk_along_the_line_finds_what_a_look_at_each_job_finds(
    place: Callable[..., Place], seed: int
) -> None:
    """For jobs with any keys, weights and priorities, also of one rank, and others between."""
    chance = random.Random(seed)
    here = place(agent=3, agent__a=1, llm=2, llm__x=1)
    here.hold("agent/a").let_go()
    here._held.clear()
    here.hold("agent/a")
    here.hold("llm/x/y")
    for number in range(40):
        keys = chance.sample(KEYS, chance.choice([1, 1, 2]))
        priority = chance.choice([0, 0, 0, 1, -1])
        if number % 10 == 5:
            key = chance.choice(["agent/a", "llm/x/y"])
            here.wait(f"other {number}", key, priority=priority)
            continue
        weight, hold = chance.choice([1, 1, 2]), chance.random() < 0.1
        here.keep(*keys, hold=hold, priority=priority, weight=weight)
    here.jobs.board.database.change(
        lambda connection: connection.execute("update jobs set rank = rank / 60000 * 60000")
    )
    if seed % 2:
        here.governor.pause("llm")

    found = places.standings(here.store, here.jobs.board)

    queued = [wish.id for wish in here.jobs.board.wishes("state = 'queued'")]
    assert sorted(found) == queued
    for job in queued:
        assert same(found[job], here.jobs.standing(job)), job
    assert len({(one.key, one.position) for one in found.values() if one.key}) == len(
        [one for one in found.values() if one.key]
    ), "two stand at the same place"


def test_a_list_of_many_tells_the_same_as_a_look_at_one(place: Callable[..., Place]) -> None:
    """However many there are."""
    here = place(agent=1)
    here.hold("agent/a")
    jobs = [job.id for job in here.jobs.submit_many([order(keys="agent/b")] * 60, start=False)]

    assert [job.position for job in here.jobs.all()] == list(range(1, 61))
    assert [job.id for job in here.jobs.waiting()] == jobs
    assert [job.position for job in here.jobs.waiting(limit=5)] == [1, 2, 3, 4, 5]
    assert here.jobs.get(jobs[59]).position == 60
    blocked = here.jobs.get(jobs[59]).blocked_by
    assert blocked is not None
    assert (blocked.key, blocked.reason) == ("agent", "full")


# -- whether a new one would have to wait ------------------------------------------------------


def test_full_means_that_a_new_job_would_have_to_wait(place: Callable[..., Place]) -> None:
    """For a slot that somebody has, or that a job before it will take."""
    here = place(agent=2, agent__b=1)
    assert here.is_full("agent/a") is None
    held = here.hold("agent/a")
    assert here.is_full("agent/a") is None
    assert here.is_full("agent/a", weight=2) == "agent"

    here.keep("agent/b")
    assert here.is_full("agent/a") == "agent"
    assert here.is_full("agent/b") == "agent/b"
    held.let_go()
    here._held.clear()

    assert here.is_full("agent/a") is None
    assert here.is_full("agent/b") == "agent/b"
    assert here.is_full("free", "agent/a") is None
    assert here.is_full("free", "agent/a", weight=2) == "agent"


def test_a_heavy_job_in_front_takes_what_it_weighs(place: Callable[..., Place]) -> None:
    """Not one slot."""
    here = place(agent=4)
    here.keep("agent/a", weight=3)

    assert here.is_full("agent/a") is None
    assert here.is_full("agent/a", weight=2) == "agent"


def test_a_key_without_a_limit_is_never_full(place: Callable[..., Place]) -> None:
    """Unless it is paused."""
    here = place(agent=1)
    here.hold("free", weight=1000)
    here.keep("free", weight=1000)
    assert here.is_full("free") is None

    here.governor.pause("free")
    assert here.is_full("free") == "free"
    assert here.is_full("free/child") == "free"


def test_somebody_who_waits_is_before_a_new_job(place: Callable[..., Place]) -> None:
    """Also when there seems to be room: it is kept for who waits."""
    here = place(agent=2)
    here.hold("agent/a")
    here.wait("heavy", "agent/x", weight=2)

    assert here.is_full("agent/a") == "agent"


def test_who_wants_to_start_now_or_not_at_all_is_told(place: Callable[..., Place]) -> None:
    """With the key and its capacity, and nothing is queued."""
    here = place(agent=1)
    now = here.jobs.submit(["true"], keys="agent/a", when_full="reject", start=False)
    assert now.position == 1

    with pytest.raises(AtCapacity, match=r"no slot now on agent .*nothing was queued") as caught:
        here.jobs.submit(["true"], keys="agent/a", when_full="reject", start=False)

    assert caught.value.capacity.key == "agent"
    assert [job.id for job in here.jobs.all()] == [now.id]
    here.jobs.board.cancel(now.id, "no")
    here.governor.pause("agent/a")
    with pytest.raises(AtCapacity, match="paused"):
        here.jobs.submit(["true"], keys="agent/a", when_full="reject", start=False)
