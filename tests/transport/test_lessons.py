"""What one process is taught by its provider, all the others know: cool-downs and budgets."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tests.transport.crews import (
    PATIENCE_SECONDS,
    names,
    texts,
    until_in_line,
    until_nothing_is_held,
)
from tests.transport.sdks import SDKS

if TYPE_CHECKING:
    from tests.llm.server import Server
    from tests.transport.crews import Start

    from headway import Governor

CASES = [
    ("openai", "threads", 429),
    ("anthropic", "tasks", 529),
    ("openai", "tasks", 503),
]

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("case", CASES)
def test_one_refusal_stops_all_processes_and_one_request_tries_first(
    home_governor: Governor, server: Server, start: Start, case: tuple[str, str, int]
) -> None:
    """Nobody asks before the time is over; then one does, and the rest when it was answered."""
    (sdk, how, status), seconds = case, 4
    model = SDKS[sdk].model
    server.plan(hold="before")
    server.plan(status=status, retry_after=str(seconds), hold="before", times=1)
    teacher = start(sdk, how, ["teacher"])
    server.until(lambda s: s.held(model) == 1, PATIENCE_SECONDS)
    others = [start(sdk, how, names(number, 3), wait_for_line=True) for number in range(2)]
    for other in others:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
    refused_at = time.monotonic()
    server.release()
    answers, _ = teacher.communicate(timeout=PATIENCE_SECONDS)
    assert not answers, "it was told of the refusal, as ever"
    for other in others:
        assert other.stdin is not None
        other.stdin.write("go\n")
        other.stdin.flush()

    server.until(lambda s: s.held(model) == 1, PATIENCE_SECONDS)
    probe = server.requests(model)[1]
    assert probe.arrived_at - refused_at >= seconds
    until_in_line(home_governor, 5)  # whoever came meanwhile waits for its answer
    assert {row.blocked_by.reason for row in home_governor.snapshot().waiting} == {"cooling"}
    assert server.in_flight(model) == 1
    server.release(later_too=True)

    got = {name: text for crew in others for name, text in texts(crew).items()}
    assert got == {name: name for name in (*names(0, 3), *names(1, 3))}
    assert len(server.requests(model)) == 7
    until_nothing_is_held(home_governor)


def test_a_budget_holds_at_the_server_over_the_restart_of_a_process(
    home_governor: Governor, server: Server, start: Start
) -> None:
    """In any window, from four processes, by the times at which requests arrived."""
    minute, slack, budget = 2.0, 1.0, 6
    home_governor.set_limit("llm/openai", {"requests_per_minute": budget})
    crews = [
        start("openai", "threads", names(number, 6), minute_seconds=minute) for number in range(4)
    ]
    server.until(lambda s: len(s.requests()) >= budget, PATIENCE_SECONDS)
    crews[0].kill()
    crews[0].communicate()
    again = start("openai", "tasks", names(9, 6), minute_seconds=minute)

    for crew in (*crews[1:], again):
        assert len(texts(crew)) == 6

    arrived = sorted(record.arrived_at for record in server.requests())
    assert len(arrived) >= 4 * budget
    spans = [later - first for first, later in zip(arrived, arrived[budget:], strict=False)]
    assert min(spans) > minute - slack, f"{budget + 1} requests in {min(spans):.3f} s"
