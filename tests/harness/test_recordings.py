"""What the real programs printed, through our parsers: every recording, and nothing invented."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.harness.kit import HARNESSES
from tests.harness.retelling import retold

_PLACE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "data", "agents")
WORDS = "a plain answer of several words"


@dataclass(frozen=True)
class Recording:
    """One run of a real program."""

    program: str
    case: str
    output: bytes
    exit_code: int
    errors: str

    def __str__(self) -> str:
        return f"{self.program}-{self.case}"


def recordings() -> list[Recording]:
    """All that there are."""
    found = []
    for program in HARNESSES:
        with open(os.path.join(_PLACE, program, "cases.json"), encoding="utf-8") as file:
            cases = json.load(file)
        for case, facts in cases.items():
            code = facts["exit_code"]
            # What was killed in the end has none, and a signal is said as a shell does.
            code = 137 if code is None else 128 - code if code < 0 else code
            ending = "txt" if case == "help" else "jsonl"
            with open(os.path.join(_PLACE, program, f"{case}.{ending}"), "rb") as output:
                errors = "\n".join(facts["stderr"])
                found.append(Recording(program, case, output.read(), code, errors))
    return found


ALL = recordings()
EVERY = pytest.mark.parametrize("recording", ALL, ids=str)
SUCCESSES = {
    "plain": WORDS,
    "paragraphs": None,
    "tool": "the tool has run",
    "two_tools": "both tools have run",
    "failing_tool": "the tool has failed",
    "limited_once": "after a limit",
    "overloaded_once": "after an overload",
    "cut_once": "one two three four five six",
    "resumed": "an answer in a resumed session",
}
# What a program does in its own way.
OTHERWISE = {
    ("gemini", "cut_once"): "truncated",
    ("gemini", "cut_for_ever"): "truncated",
    ("opencode", "cut_for_ever"): "truncated",
    ("gemini", "sigterm"): "truncated",
    ("gemini", "sigint"): "truncated",
}
# Gemini tells only its standard error of what it repeats, opencode nobody.
SILENT = {("gemini", "limited_once"), ("opencode", "limited_once")}


def test_there_are_recordings_of_all_programs() -> None:
    """And of every case for each."""
    assert {recording.program for recording in ALL} == set(HARNESSES)
    assert len({recording.case for recording in ALL}) * len(HARNESSES) == len(ALL) >= 76


@EVERY
def test_its_status_is_true(recording: Recording) -> None:
    """Success is what was one, with its whole text; all else has a reason."""
    told = retold(
        recording.program,
        [recording.output],
        exit_code=recording.exit_code,
        errors=recording.errors,
    )

    expected = "succeeded" if recording.case in SUCCESSES else "failed"
    assert told.status == OTHERWISE.get((recording.program, recording.case), expected), told.reason
    assert (told.reason is None) == (told.status == "succeeded")
    if told.status == "succeeded" and SUCCESSES[recording.case]:
        assert told.story.text == SUCCESSES[recording.case]
    if told.status == "truncated":
        assert told.story.text.startswith("one two ")
    if told.status != "failed":
        assert told.story.session_id


@EVERY
def test_its_tool_calls_and_usage_are_told(recording: Recording) -> None:
    """As many as there were, with arguments and answers; and what was spent."""
    told = retold(recording.program, [recording.output])

    calls = {"tool": 1, "failing_tool": 1, "two_tools": 2}.get(recording.case, 0)
    assert len(told.calls) == told.kinds.count("tool_call") == calls
    assert told.kinds.count("tool_result") == calls
    for call in told.calls:
        assert call.tool in {"bash", "Bash", "shell", "run_shell_command"}
        assert call.id
        assert "echo" in call.arguments["command"]
    for event in told.events:
        if event.kind == "tool_result":
            # Gemini calls it a success if a command could be run.
            is_error = recording.case == "failing_tool" and recording.program != "gemini"
            assert event.is_error == is_error  # type: ignore[attr-defined]
            assert event.tool  # type: ignore[attr-defined]
    usage = told.story.usage
    spent = {"plain": (7, 6), "tool": (22, 11), "two_tools": (33, 18), "limited_once": (12, 3)}
    if recording.case in spent:
        assert (usage.input_tokens, usage.output_tokens) == spent[recording.case]


@EVERY
def test_its_rate_limit_is_recognised(recording: Recording) -> None:
    """Where the program tells of one, and nowhere else."""
    told = retold(recording.program, [recording.output])

    is_limited = (
        recording.case.startswith("limited") and (recording.program, recording.case) not in SILENT
    )
    assert told.story.is_rate_limited == is_limited
    assert bool(told.limits) == is_limited
    says_when = recording.program in {"opencode", "gemini"} and recording.case == "limited_for_ever"
    if says_when:
        assert told.limits == [1.0]


@EVERY
def test_how_it_is_cut_into_pieces_changes_nothing(recording: Recording) -> None:
    """Byte by byte is the same as all at once."""
    whole = retold(recording.program, [recording.output])
    output = recording.output
    assert retold(recording.program, [output[i : i + 1] for i in range(len(output))]).essence == (
        whole.essence
    )


@settings(deadline=None)
@given(data=st.data(), recording=st.sampled_from(ALL))
def test_random_pieces_change_nothing(data: st.DataObject, recording: Recording) -> None:
    """Wherever it is cut."""
    output = recording.output
    cuts = sorted(data.draw(st.lists(st.integers(0, len(output)), max_size=20)))
    chunks = [output[a:b] for a, b in zip([0, *cuts], [*cuts, len(output)], strict=True)]

    assert retold(recording.program, chunks).essence == (
        retold(recording.program, [output]).essence
    )


@settings(deadline=None)
@given(recording=st.sampled_from(ALL), data=st.data())
def test_half_of_it_is_never_a_success(recording: Recording, data: st.DataObject) -> None:
    """Unless all that is missing comes after its terminal event."""
    lines = recording.output.splitlines(keepends=True)
    kept = data.draw(st.integers(0, max(0, len(lines) - 1)))

    told = retold(recording.program, lines[:kept])

    assert told.status != "succeeded" or told.story.is_complete
    if kept < len(lines) and recording.case == "plain":
        assert told.status != "succeeded"


RECORDS = [
    (one.program, json.loads(line))
    for one in ALL
    if one.case != "help"
    for line in one.output.splitlines()
]
WRONG: st.SearchStrategy[Any] = st.sampled_from(
    [
        *(None, True, 0, -1, 10**400, 1e308, float("inf"), float("nan"), "", "\ud800", "429"),
        *([], {}, [None], [[]], [{}], {"": None}, {"message": {}}, "x" * 5000),
    ]
)


def spoiled(data: st.DataObject, value: Any) -> Any:
    """The same with something in it that nobody would expect there."""
    if isinstance(value, dict) and value and data.draw(st.integers(0, 4)):
        name = data.draw(st.sampled_from(sorted(value)))
        return {**value, name: spoiled(data, value[name])}
    if isinstance(value, list) and value and data.draw(st.integers(0, 4)):
        return [spoiled(data, value[0]), *value[1:]]
    return data.draw(WRONG)


@settings(deadline=None)
@given(data=st.data(), record=st.sampled_from(RECORDS))
def test_records_of_any_shape_never_raise(
    data: st.DataObject, record: tuple[str, dict[str, Any]]
) -> None:
    """Numbers for texts, lists for objects, infinities, halves of characters."""
    program, fields = record
    line = json.dumps(spoiled(data, fields)).encode()

    told = retold(program, [line, b"\n", line])

    told.story.text.encode()
    assert json.dumps([event.as_dict() for event in told.events])
    assert told.status in {"failed", "truncated", "succeeded"}


@settings(deadline=None)
@given(program=st.sampled_from(sorted(HARNESSES)), chunks=st.lists(st.binary(max_size=200)))
def test_random_bytes_never_raise(program: str, chunks: list[bytes]) -> None:
    """And are no success."""
    assert retold(program, chunks).status in {"failed", "truncated"}
