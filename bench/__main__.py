"""``python -m bench [NAME...] [--quick] [--json FILE]``."""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import traceback

from bench import (
    agents,
    command,
    crash,
    depth,
    gateway,
    handoff,
    idle,
    jobs,
    lessons,
    loop,
    order,
    redis_crash,
    redis_depth,
    redis_load,
    redis_speed,
    startup,
    throughput,
    transports,
    uncontended,
)
from bench.figure import Effort
from bench.report import machine, summary, warning

FIGURES = (
    uncontended.SHARED,
    handoff.FIGURE,
    crash.FIGURE,
    order.FIGURE,
    throughput.FIGURE,
    depth.FIGURE,
    uncontended.MEMORY,
    startup.FIGURE,
    command.FIGURE,
    idle.FIGURE,
    loop.FIGURE,
    jobs.KEEPING,
    jobs.STARTING,
    jobs.MANY_JOBS,
    agents.FIGURE,
    transports.CALLING,
    transports.STREAMING,
    lessons.FIGURE,
    gateway.FIGURE,
    redis_speed.UNCONTENDED,
    redis_speed.HANDOFF,
    redis_crash.FIGURE,
    redis_speed.THROUGHPUT,
    redis_depth.FIGURE,
    redis_load.FIGURE,
)


def main() -> int:
    figures = {figure.name: figure for figure in FIGURES}
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(figures)}")
    parser.add_argument("--quick", action="store_true", help="short runs, to see that it works")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in figures]
    if unknown:
        parser.error(f"no figure {', '.join(unknown)}; there are {', '.join(figures)}")

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # children and homes go with us
    logging.getLogger("headway").addHandler(logging.NullHandler())  # we crash holders on purpose
    where, results, failed = machine(), [], []
    for key, value in where.items():
        print(f"{key}: {value}")
    if busy := warning():
        print(busy)
    for name in options.names or figures:
        print(flush=True)
        try:
            results.append(figures[name].run(Effort(quick=options.quick)))
        except Exception:  # noqa: BLE001 - the other figures are worth having
            traceback.print_exc()
            failed.append(name)
        else:
            print(results[-1].table(), flush=True)
    print(f"\n{summary(results)}")
    if failed:
        print(f"Failed: {', '.join(failed)}.")
    if options.json:
        found = {
            "machine": where,
            "quick": options.quick,
            "figures": [result.as_json() for result in results],
            "failed": failed,
        }
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=2, ensure_ascii=False)
            file.write("\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
