"""An agent of ``headway demo``: does its steps and says so. It knows nothing of Headway.

    python scripted_agent.py 'reading main.py=0.5' 'editing main.py=1.2' …

After its first step it waits for a line on stdin, so that the story begins when
everyone has arrived and is seen. Without a reader it ends.
"""

from __future__ import annotations

import os
import sys
import time


def main(steps: list[str]) -> None:
    """Do one step after the other."""
    _say("began", str(time.monotonic()))
    for place, step in enumerate(steps):
        doing, _, seconds = step.rpartition("=")
        _say("doing", doing)
        time.sleep(float(seconds))
        if place == 0:
            sys.stdin.readline()
    _say("ended", str(time.monotonic()))


def _say(what: str, detail: str) -> None:
    sys.stdout.write(f"{what} {detail}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(1)
