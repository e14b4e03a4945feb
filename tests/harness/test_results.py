"""True results: success is what the program itself called complete, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.harness.kit import HARNESSES
from tests.harness.speech import begun, done, printed, said, spoken, used

if TYPE_CHECKING:
    from tests.harness.kit import Stage

    from headway.harness import Result

EVERY = pytest.mark.parametrize("program", list(HARNESSES))
OTHERS: dict[str, list[object]] = {
    "opencode": [
        {"type": "error", "error": {"name": "APIError", "data": {"message": "no, 42"}}},
    ],
    "claude": [
        {"type": "result", "subtype": "success", "is_error": True, "result": "no, 42"},
    ],
    "codex": [{"type": "turn.failed", "error": {"message": "no, 42"}}],
    "gemini": [{"type": "result", "status": "error", "error": {"message": "no, 42"}}],
}


def ran(stage: Stage, program: str, script: str, **options: Any) -> Result:
    """What becomes of a stand-in that does this."""
    return stage.agent(program, script).execute("do it", **options)


@EVERY
def test_an_answer_is_a_success(stage: Stage, program: str) -> None:
    """With text, session, usage and exit code as the program told them."""
    result = ran(stage, program, spoken(program, "Fixed it.\nReally.", session="s-7"), task="t-1")

    assert (result.status, result.reason, result.text) == ("succeeded", None, "Fixed it.\nReally.")
    assert (result.session_id, result.exit_code, result.task) == ("s-7", 0, "t-1")
    assert (result.usage.input_tokens, result.usage.output_tokens) == (11, 7)
    assert (result.tool_calls, result.attempts, result.is_rate_limited) == ((), 1, False)
    assert result.ok


@EVERY
def test_a_tool_call_is_kept_and_is_not_the_answer(stage: Stage, program: str) -> None:
    """What was said before it was not the answer either."""
    records = [*begun(program), *said(program, "Let me look."), *used(program, "ls -l")]
    records += [*said(program, "There is nothing."), *done(program, "There is nothing.")]

    result = ran(stage, program, printed(*records))

    (call,) = result.tool_calls
    assert (result.status, result.text) == ("succeeded", "There is nothing.")
    assert call.arguments == {"command": "ls -l"}


@EVERY
def test_exit_code_0_without_the_terminal_event_is_no_success(stage: Stage, program: str) -> None:
    """What there was of an answer is kept."""
    result = ran(stage, program, printed(*begun(program), *said(program, "I have be")))

    assert (result.status, result.text, result.exit_code) == ("truncated", "I have be", 0)
    assert f"its output ended before {program} said that it was done" in (result.reason or "")


@EVERY
def test_the_terminal_event_and_exit_code_1_are_no_success(stage: Stage, program: str) -> None:
    """And the reason says both."""
    result = ran(stage, program, spoken(program, "Done.") + "\necho went wrong >&2; exit 1")

    assert (result.status, result.text, result.exit_code) == ("failed", "Done.", 1)
    assert result.reason == "exit code 1, after its answer was complete: went wrong"


@EVERY
def test_an_error_record_is_no_success_whatever_the_exit_code(stage: Stage, program: str) -> None:
    """Also inside one that is called a success."""
    result = ran(stage, program, printed(*begun(program), *OTHERS[program]))

    assert (result.status, result.reason, result.exit_code) == ("failed", "no, 42", 0)


@EVERY
def test_a_stream_cut_in_the_middle_of_a_line_is_no_success(stage: Stage, program: str) -> None:
    """The half line is no event."""
    half = 'printf \'{"type":"resul\''
    script = f"{printed(*begun(program), *said(program, 'Half of'))}\n{half}"

    result = ran(stage, program, script)

    assert (result.status, result.text) == ("truncated", "Half of")


@EVERY
def test_an_empty_answer_is_no_success(stage: Stage, program: str) -> None:
    """Blanks are nothing."""
    for nothing in ("", "  \n "):
        result = ran(stage, program, spoken(program, nothing))

        assert (result.status, result.reason) == ("failed", "it ended without an answer")


@EVERY
def test_a_help_screen_is_no_success(stage: Stage, program: str) -> None:
    """Its beginning is in the reason."""
    result = ran(stage, program, f"echo 'Usage: {program} [options]'; echo; echo ' -h  help'")

    assert result.status == "failed"
    assert result.reason == f"it printed no event of {program}, but: Usage: {program} [options]"


@EVERY
def test_silence_is_no_success(stage: Stage, program: str) -> None:
    """Not a byte."""
    result = ran(stage, program, "exit 0")

    assert (result.status, result.reason) == ("failed", f"it printed no event of {program}")


@EVERY
def test_what_is_killed_by_a_signal_is_truncated(stage: Stage, program: str) -> None:
    """If it had begun to answer; the signal is named."""
    script = printed(*begun(program), *said(program, "I am g")) + "\nkill -9 $$"

    result = ran(stage, program, script)

    assert (result.status, result.text, result.exit_code) == ("truncated", "I am g", 137)
    assert result.reason == "ended by SIGKILL"


@EVERY
def test_noise_between_the_events_does_no_harm(stage: Stage, program: str) -> None:
    """Binary, broken JSON, JSON of other kinds, deep nesting, blank lines."""
    noise = (
        'printf \'\\377\\376\\000\\001\\n\\n[1,2]\\n"x"\\n{"type":\\n{}\\n{"type":7}\\n'
        '{"type":"result","stats":3,"usage":[],"status":{}}\\n\' | head -c 40\n'
        "head -c 100000 /dev/zero | tr '\\0' '['; echo\n"
        "head -c 100000 /dev/zero | tr '\\0' '{'; echo\n"
        "printf '{\"a\":'; head -c 100000 /dev/zero | tr '\\0' '['; echo\n"
    )
    script = f"{printed(*begun(program))}\n{noise}{spoken(program, 'Still here.')}\n{noise}"

    result = ran(stage, program, script)

    assert (result.status, result.text) == ("succeeded", "Still here.")


@pytest.mark.parametrize(
    ("program", "record"),
    [
        ("claude", {"type": "result", "subtype": "error_during_execution", "is_error": True}),
        ("claude", {"type": "result", "subtype": "error_max_turns", "is_error": False}),
        ("gemini", {"type": "result", "status": "cancelled"}),
    ],
)
def test_every_other_end_is_no_success(stage: Stage, program: str, record: object) -> None:
    """Only the one word is."""
    result = ran(stage, program, printed(*begun(program), *said(program, "hm"), record))

    assert result.status == "failed"


@pytest.mark.parametrize(
    ("program", "record"),
    [
        ("opencode", {"type": "step_finish", "part": {"reason": "length"}}),
        (
            "claude",
            {"type": "result", "subtype": "success", "stop_reason": "max_tokens", "result": "x"},
        ),
        ("gemini", {"type": "error", "severity": "error", "message": "Loop, stopping"}),
    ],
)
def test_an_answer_that_hit_its_longest_is_truncated(
    stage: Stage, program: str, record: object
) -> None:
    """Although the program ends well."""
    script = printed(*begun(program), *said(program, "and so on"), record)

    result = ran(stage, program, script)

    assert (result.status, result.text) == ("truncated", "and so on")


@pytest.mark.parametrize("reason", ["unknown", "other", "error", "content-filter", "", None])
def test_a_step_that_ends_for_another_reason_is_not_the_end(
    stage: Stage, reason: str | None
) -> None:
    """Opencode says "unknown" when its stream was cut."""
    end = {"type": "step_finish", "part": {"reason": reason}}
    script = printed(*begun("opencode"), *said("opencode", "one two"), end)

    assert ran(stage, "opencode", script).status == "truncated"


def test_a_step_after_the_end_means_that_it_was_not(stage: Stage) -> None:
    """Opencode repeats a step whose stream was cut."""
    again = [*begun("opencode"), *said("opencode", "once")]
    end = done("opencode", "")

    assert ran(stage, "opencode", printed(*again, *end, *again)).status == "truncated"
    assert ran(stage, "opencode", printed(*again, *end, *again, *end)).status == "succeeded"


def test_plain_text_is_the_answer_of_any_other_command(stage: Stage) -> None:
    """Complete, if it ends with 0 and there was some."""
    loud = ran(stage, "aider", "printf 'héllo\\nworld\\n'")
    assert (loud.status, loud.text) == ("succeeded", "héllo\nworld\n")
    assert ran(stage, "aider", "true").reason == "it ended without an answer"
    assert ran(stage, "aider", "exit 3").reason == "exit code 3"
    failed = ran(stage, "aider", "echo part; echo why >&2; exit 3")
    assert (failed.status, failed.text) == ("failed", "part\n")
    assert (failed.exit_code, failed.reason) == (3, "exit code 3: why")
