"""What one operation costs on a Redis server when the queue is long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench import depth
from bench.children import crew
from bench.contenders import LIMITED_KEY
from bench.figure import Effort, Figure, Findings
from bench.redis_contenders import Headway
from bench.redis_server import server
from headway.limits import CODE, Line
from headway.stores import open_store

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


def measure(effort: Effort, directory: str) -> Findings:
    many = effort.pick(100_000, 5_000)
    with server(directory) as url, crew() as start:
        benches = {
            waiting: start(_measure, Headway(directory, url, 1), waiting)
            for waiting in (depth.FEW, many)
        }
        rows = depth.rows("redis", benches, many, effort)
    return Findings(rows, [f"headway: with {many:,} waiting"])


def _measure(pipe: Connection, contender: Headway, waiting: int) -> None:
    contender.move_in()
    one, other, crowd = (open_store(None)[0] for _ in range(3))
    terms = one.terms()
    assert one.set_terms(
        terms.with_lines([Line(LIMITED_KEY, contender.limit, CODE)]), expected=terms
    )
    depth.answer(pipe, depth.Bench(one, other, crowd, waiting))


FIGURE = Figure("redis-depth", "one operation with a long line, and with a short one", measure)
