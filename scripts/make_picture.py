"""Makes docs/demo.svg, the picture in the README, from a real run of the demo.

python scripts/make_picture.py
"""

from __future__ import annotations

import io
import os
import re

from rich.console import Console
from rich.terminal_theme import TerminalTheme

from headway.cli import lanes
from headway.cli.story import Story

COLUMNS = 88
FRAME_SECONDS = 0.08
# The moment that shows it all: some are done, one is dead, its heir works, others wait.
AFTER_KILL_SECONDS = 3.7
PICTURE = os.path.join(os.path.dirname(__file__), os.pardir, "docs", "demo.svg")
COLOURS = [
    (240, 113, 120),
    (126, 200, 130),
    (230, 192, 110),
    (110, 170, 240),
    (190, 150, 230),
    (100, 200, 210),
]
# Calm on light and dark pages alike.
THEME = TerminalTheme(
    (17, 21, 28),
    (214, 220, 228),
    [
        (17, 21, 28),
        *COLOURS,
        (214, 220, 228),
    ],
    [
        (105, 115, 130),
        *COLOURS,
        (240, 244, 248),
    ],
)


def main() -> None:
    """Run the demo, keep one moment of it, and draw that."""
    console = Console(
        record=True,
        width=COLUMNS,
        file=io.StringIO(),
        force_terminal=True,
        color_system="standard",
        highlight=False,
    )
    with Story() as story:
        while not story.is_over:
            story.go_on(FRAME_SECONDS)
            killed_at = story.victim.killed_at
            if killed_at and story.seconds > killed_at - story.began_at + AFTER_KILL_SECONDS:
                break
        console.print(lanes.frame(story, COLUMNS))
    svg = console.export_svg(title="headway demo", theme=THEME, unique_id="headway-demo")
    with open(PICTURE, "w", encoding="utf-8") as file:
        file.write(_without_internet(svg))


def _without_internet(svg: str) -> str:
    """The fonts of the reader's machine will do."""
    svg = re.sub(r"@font-face\s*\{.*?\}\s*", "", svg, flags=re.DOTALL)
    return svg.replace("Fira Code, monospace", "ui-monospace, Menlo, 'DejaVu Sans Mono', monospace")


if __name__ == "__main__":
    main()
