"""The rig that every contract test works with, once per store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pytest

pytest.register_assert_rewrite(
    "tests.contract.diary", "tests.contract.machine", "tests.contract.oracle"
)

from tests.contract.houses import HOUSES  # noqa: E402 - after what rewrites its asserts
from tests.contract.rig import Rig  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import FakeClock


class RigMaker(Protocol):
    """Sets up a rig with other settings than usual."""

    def __call__(self, *, max_waiting: int = 100_000) -> Rig: ...


@pytest.fixture(params=sorted(HOUSES))
def make_rig(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock
) -> Iterator[RigMaker]:
    """Sets up rigs on the store under contract, and clears them away."""
    made: list[Rig] = []

    def make(*, max_waiting: int = 100_000) -> Rig:
        directory = str(tmp_path / f"house-{len(made)}")
        house = HOUSES[request.param](directory, clock=clock, max_waiting=max_waiting)
        made.append(Rig(house, clock))
        return made[-1]

    yield make
    for rig in made:
        rig.house.close(rig.holders)


@pytest.fixture
def rig(make_rig: RigMaker) -> Rig:
    """Three holders on the store under contract."""
    return make_rig()
