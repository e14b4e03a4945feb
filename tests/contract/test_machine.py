"""All rules at once: random histories on the model and on a store, step by step the same."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase
from hypothesis.stateful import run_state_machine_as_test
from tests.contract.machine import EagerStoresAgree, RedisAgrees, StoresAgree

MACHINES = [StoresAgree, EagerStoresAgree, RedisAgrees]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("machine", MACHINES)
def test_random_histories_are_the_same_on_both_stores(machine: type[StoresAgree]) -> None:
    """The same few histories in every run, so that a red test stays red until it is mended."""
    settings = _settings(examples=30, steps=40)
    run_state_machine_as_test(
        machine,
        # To shorten a history can take minutes. To have it done, take out the phases.
        settings=hypothesis.settings(settings, derandomize=True, phases=[Phase.generate]),
    )


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("steps", [25, 60, 150])
@pytest.mark.parametrize("machine", MACHINES)
def test_many_random_histories_are_the_same_on_both_stores(
    machine: type[StoresAgree], steps: int
) -> None:
    """Other histories in every run, short ones and long ones."""
    run_state_machine_as_test(machine, settings=_settings(30_000 // steps, steps))


def _settings(examples: int, steps: int) -> hypothesis.settings:
    return hypothesis.settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
