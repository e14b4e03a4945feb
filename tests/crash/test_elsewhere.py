"""One home seen from different places: other directories, other pid namespaces, odd paths."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest
from tests.crash.kit import Crew, unshare

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux namespaces")

_PID_NAMESPACE = ["--pid", "--fork", "--kill-child", "--mount-proc"]


def _other_place(crew: Crew) -> dict[str, str]:
    """Another temporary directory and another user's directory, but the same HEADWAY_HOME."""
    places = {}
    for name in ("TMPDIR", "HOME", "XDG_RUNTIME_DIR"):
        place = crew.scratch / "elsewhere" / name
        place.mkdir(parents=True, exist_ok=True)
        places[name] = str(place)
    return places


_HOLDER = """
governor = headway.Governor()
with governor.slot("k", on_wait=queued):
    say("granted", os.getpid())
    hear()
say("left")
hear()
"""


def test_another_namespace_counts_and_waits_both_ways(crew: Crew) -> None:
    """Processes that do not see each other's pids share one limit and hand slots over."""
    crew.limits(k=1)
    before = unshare(*_PID_NAMESPACE)
    here = crew.start(_HOLDER)
    here.expect("granted")
    there = crew.start(_HOLDER, before=before, **_other_place(crew))
    there.expect("waiting")

    here.ask("leave", "left")
    there.expect("granted")
    here_again = crew.start(_HOLDER)
    here_again.expect("waiting")
    there.ask("leave", "left")

    here_again.expect("granted")


@pytest.mark.parametrize("victim_is_inside", [True, False])
def test_a_death_in_another_namespace_gives_back(
    crew: Crew,
    victim_is_inside: bool,  # noqa: FBT001
) -> None:
    """A holder killed in another pid namespace is missed, seen from either side."""
    crew.limits(k=1)
    before = unshare(*_PID_NAMESPACE)
    victim_place, waiter_place = (before, []) if victim_is_inside else ([], before)
    victim = crew.start(_HOLDER, before=victim_place)
    victim.expect("granted")
    waiter = crew.start(_HOLDER, before=waiter_place)
    waiter.expect("waiting")

    # With --kill-child the kernel ends the child together with unshare.
    victim.kill()

    waiter.expect("granted")


def test_two_namespaces_with_the_same_pids(crew: Crew) -> None:
    """A holder and a waiter that both are pid 1 in their own namespaces are not confused."""
    crew.limits(k=1)
    before = unshare(*_PID_NAMESPACE)
    victim, waiter = crew.start(_HOLDER, before=before), None
    assert victim.expect("granted") == "1"
    waiter = crew.start(_HOLDER, before=before)
    waiter.expect("waiting")

    victim.kill()

    assert waiter.expect("granted") == "1"


def test_without_proc_everything_still_works(crew: Crew) -> None:
    """Where /proc is missing, in two namespaces, deaths are noticed and wake-ups fall back."""
    crew.limits(k=1)
    # Nothing at /proc: neither the namespace nor /proc/self/fd can be read.
    command = unshare("--mount", "--pid", "--fork", "--kill-child")
    before = [*command, "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
    victim = crew.start(_HOLDER, before=before)
    victim.expect("granted")
    waiter = crew.start(_HOLDER, before=before)
    waiter.expect("waiting")

    victim.kill()

    waiter.expect("granted")
    behind = crew.start(_HOLDER, before=before)
    behind.expect("waiting")
    waiter.ask("leave", "left")
    behind.expect("granted")


_ODD = {
    "long": os.path.join(*["d" * 60] * 4),
    "spaces": "  a home with  spaces ",
    "letters": "Zuhause-für-Ähren-家-\U0001f3e0",
    "signs": "100% #home?mode=memory&x='\"$HOME;*[a]:\\n",
    "a byte that is no text": os.fsdecode(b"caf\xe9"),
}


@pytest.fixture(params=list(_ODD.values()), ids=list(_ODD))
def odd_crew(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Crew]:
    """Processes in a home with an unusual path."""
    home = tmp_path / request.param
    crew = Crew(home, tmp_path)
    try:
        yield crew
    finally:
        crew.clean_up()


def test_homes_with_odd_paths(odd_crew: Crew) -> None:
    """Length, spaces and letters of a home's path change nothing, wake-ups included."""
    crew = odd_crew
    crew.limits(k=1)
    holder = crew.holding("k")
    first, second = crew.waiter("k"), crew.waiter("k")

    holder.ask("leave", "left")
    first.expect("granted")
    first.kill()
    second.expect("granted")

    # The wake-up itself came, not only the look that follows a lost one.
    sockets = [name for name in os.listdir(crew.home / "live") if name.endswith(".sock")]
    assert len(sockets) >= 2
    assert {"slots.db", "slots.lock", "live", "config.toml"} <= set(os.listdir(crew.home))


def test_two_spellings_of_one_home(crew: Crew) -> None:
    """A home reached through a link or a relative path is the same home."""
    crew.limits(k=1)
    link = crew.scratch / "link"
    link.symlink_to(crew.home)
    holder = crew.holding("k", HEADWAY_HOME=str(link))
    waiter = crew.waiter("k", HEADWAY_HOME=os.path.relpath(crew.home))

    holder.kill()

    waiter.expect("granted")
