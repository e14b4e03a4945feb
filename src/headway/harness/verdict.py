"""What the end of a program means: success is what it called complete, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway.family import how_it_ended

if TYPE_CHECKING:
    from headway.harness.attempt import Outcome
    from headway.harness.result import Status
    from headway.harness.story import Story

_SHOWN = 500


def verdict(program: str, story: Story, outcome: Outcome) -> tuple[Status, str | None]:
    """The status, and the reason for it if it is not a success."""
    if outcome.stop is not None:
        return outcome.stop.status, outcome.stop.reason
    if outcome.trouble is not None:
        return "failed", outcome.trouble
    if story.error is not None:
        status: Status = "truncated" if story.is_cut and story.text else "failed"
        return status, _shortened(story.error)
    if outcome.exit_code != 0:
        return _after_bad_exit(story, outcome)
    if not story.is_complete:
        return _without_end(program, story)
    if story.lost_session:
        return "failed", (
            f"it did not continue session {story.lost_session}, which it may no longer have, but"
            f" began a new one, {story.session_id}, without what was said before"
        )
    if not story.text.strip():
        return "failed", "it ended without an answer"
    if story.is_cut:
        return "truncated", story.left_out or "its answer was too long to be kept whole"
    return "succeeded", None


def _after_bad_exit(story: Story, outcome: Outcome) -> tuple[Status, str]:
    how = how_it_ended(outcome.exit_code)
    said = _last_line(outcome.errors) or _last_line(story.noise)
    if story.is_complete and story.text and not story.is_plain:
        how = f"{how}, after its answer was complete"
    status: Status = "truncated" if story.text and not story.is_complete else "failed"
    return status, f"{how}: {said}" if said else how


def _without_end(program: str, story: Story) -> tuple[Status, str]:
    if story.has_begun:
        left_out = f"; {story.left_out}" if story.left_out else ""
        return "truncated", f"its output ended before {program} said that it was done{left_out}"
    if story.noise.strip():
        first = story.noise.strip().splitlines()[0]
        return "failed", f"it printed no event of {program}, but: {_shortened(first)}"
    return (
        "failed",
        f"it printed no event of {program}{f'; {story.left_out}' * bool(story.left_out)}",
    )


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return _shortened(lines[-1]) if lines else ""


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
