"""Many processes, threads and tasks at once, and somebody independent who counts."""

from __future__ import annotations

import random
import signal
import time
from typing import TYPE_CHECKING

import pytest
from tests.crash.actor import Board

if TYPE_CHECKING:
    from tests.crash.kit import Child, Crew

_PROCESSES = 8
_WORKERS = 6  # threads and tasks in each process

# Half threads, half tasks. Each asks again and again, mostly briefly, and often gives up. What
# it asks for always contains k, whose slots the board counts; the other keys cross each other.
_HAMMER = """
import random
from tests.crash.actor import Board
chance = random.Random({seed})
board, limit, many_keys = Board({board!r}), {limit}, {many_keys}
governor = headway.Governor()
ended = threading.Event()
started = done = granted = 0
count = threading.Lock()

def wish():
    if not many_keys:
        return ["k"]
    return chance.sample(["k", "k/a", "k/b", "m/x", "m/y", "m", "z"], chance.randint(1, 4)) + ["k"]

def options():
    return dict(timeout=chance.choice([None, None, 0.0, 0.001, 0.01, 0.2]),
                priority=chance.choice([0, 0, 5, -5]))

def note(name):
    global started, done, granted
    with count:
        started += name == "started"
        done += name == "done"
        granted += name == "granted"

def thread(me):
    while not ended.is_set():
        note("started")
        try:
            with governor.slot(*wish(), **options()):
                note("granted")
                with board.inside(me, limit):
                    time.sleep(chance.choice([0, 0, 0.0005, 0.002]))
        except (headway.QueueTimeout, headway.Cancelled):
            pass
        note("done")

async def task(me):
    async with governor.slot(*wish(), **options()):
        note("granted")
        with board.inside(me, limit):
            await asyncio.sleep(chance.choice([0, 0, 0.0005, 0.002]))

async def tasks(mine):
    async def again(me):
        while not ended.is_set():
            note("started")
            trying = asyncio.create_task(task(me))
            if chance.random() < 0.3:
                await asyncio.sleep(chance.choice([0, 0, 0.001, 0.005]))
                trying.cancel()
            try:
                await trying
            except (headway.QueueTimeout, headway.Cancelled, asyncio.CancelledError):
                pass
            note("done")
            await asyncio.sleep(0)
    await asyncio.gather(*(again(me) for me in mine))

def cancel_some():
    while not ended.is_set():
        time.sleep(0.02)
        waiting = governor.snapshot().waiting
        if waiting:
            governor.cancel(chance.choice(waiting).id)

first = {first}
mine = list(range(first, first + {workers}))
half = len(mine) // 2
workers = [threading.Thread(target=thread, args=(me,)) for me in mine[:half]]
workers.append(threading.Thread(target=lambda: asyncio.run(tasks(mine[half:]))))
if {first} == 0:
    workers.append(threading.Thread(target=cancel_some))
say("ready")
hear()
for worker in workers:
    worker.start()
while (wanted := hear()) != "end":
    while granted < int(wanted):
        time.sleep(0.01)
    say("enough")
ended.set()
for worker in workers:
    worker.join()
say("ended", started == done, granted)
hear()
"""


class _Hammer:
    """The processes, and the board they write on."""

    def __init__(self, crew: Crew, *, limit: int, many_keys: bool) -> None:
        self._crew, self._limit, self._many_keys = crew, limit, many_keys
        self._path = str(crew.scratch / "board")
        Board.create(self._path, _PROCESSES * _WORKERS)
        self._seed = 0
        self.children = [self.start(place) for place in range(_PROCESSES)]

    def start(self, place: int) -> Child:
        """A process at a place of the board."""
        self._seed += 1
        child = self._crew.start(
            _HAMMER.format(
                seed=self._seed,
                board=self._path,
                limit=self._limit,
                many_keys=self._many_keys,
                first=place * _WORKERS,
                workers=_WORKERS,
            )
        )
        child.expect("ready")
        child.tell("go")
        return child

    def work(self, grants: int) -> None:
        """Go on until every process was granted so much."""
        for child in self.children:
            child.tell(str(grants))
        for child in self.children:
            child.expect("enough")

    def finish(self) -> int:
        """Let all end what they began; how many grants there were."""
        granted = 0
        for child in self.children:
            child.tell("end")
        for child in self.children:
            all_ended, grants = child.expect("ended").split()
            assert all_ended == "True"
            granted += int(grants)
        return granted


def _limits(crew: Crew) -> None:
    crew.limits(k=3, k__a=1, k__b=2, m=2, m__x=1, z=1)


@pytest.mark.parametrize("many_keys", [False, True])
def test_never_over_and_everyone_ends(crew: Crew, many_keys: bool) -> None:  # noqa: FBT001
    """Under pressure, with cancels and timeouts, the limit holds and every ticket ends."""
    _limits(crew)
    hammer = _Hammer(crew, limit=3, many_keys=many_keys)

    hammer.work(50)

    assert hammer.finish() > 100
    watcher = crew.watcher()
    assert watcher.ask("leases", "leases") == "0"
    assert watcher.ask("waiting", "waiting") == "0"
    assert watcher.ask("take-all k 3", "took") == "all"
    assert watcher.ask("audit", "audited") == "fine"


@pytest.mark.soak
@pytest.mark.parametrize("many_keys", [False, True])
def test_never_over_while_processes_die(crew: Crew, many_keys: bool) -> None:  # noqa: FBT001
    """The same for half a minute, with processes killed, frozen and started anew all the time."""
    _limits(crew)
    hammer, chance = _Hammer(crew, limit=3, many_keys=many_keys), random.Random(1)
    watcher = crew.watcher()
    until = time.monotonic() + 30
    while time.monotonic() < until:
        place = chance.randrange(_PROCESSES)
        victim = hammer.children[place]
        if chance.random() < 0.2:
            victim.signal(signal.SIGSTOP)
            time.sleep(chance.choice([0.01, 0.3]))
            victim.signal(signal.SIGCONT)
        else:
            victim.kill()
            assert "OVER" not in victim.unread()
            hammer.children[place] = hammer.start(place)
        assert watcher.ask("audit", "audited") == "fine"

    assert hammer.finish() > 100
    assert watcher.ask("waiting", "waiting") == "0"
    assert watcher.ask("take-all k 3", "took") == "all"
    assert watcher.ask("audit", "audited") == "fine"
