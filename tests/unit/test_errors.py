from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import headway
from headway import errors
from headway.errors import HeadwayError
from headway.views import BlockedBy, Capacity

if TYPE_CHECKING:
    from collections.abc import Callable

CAPACITY = Capacity("k", 1, 1, 0, 2, 3.5, BlockedBy("k", "full"), "full")
EXAMPLES: list[tuple[HeadwayError, dict[str, object], list[str]]] = [
    (
        errors.AtCapacity(CAPACITY, "no slot free on k"),
        {"capacity": CAPACITY, "reason": "no slot free on k"},
        ["no slot free on k"],
    ),
    (
        errors.CoolingDown(CAPACITY, "k is cooling until 14:05:00", 1e9),
        {"capacity": CAPACITY, "reason": "k is cooling until 14:05:00", "until": 1e9},
        ["k is cooling until 14:05:00"],
    ),
    (
        errors.QueueTimeout(("a", "b"), 1.5),
        {"keys": ("a", "b"), "timeout_seconds": 1.5},
        ["a + b", "1.5 s", "not started"],
    ),
    (
        errors.Cancelled(("a",), "abc-1"),
        {"keys": ("a",), "ticket_id": "abc-1"},
        ["abc-1", "a", "cancelled"],
    ),
    (
        errors.LeaseLost(("a",), "abc-1", "by hand"),
        {"keys": ("a",), "lease_id": "abc-1", "reason": "by hand"},
        ["abc-1", "by hand", "stop the work"],
    ),
    (
        errors.DeadlockRefused("a", ("abc-1", "abc-2")),
        {"key": "a", "held_by": ("abc-1", "abc-2")},
        ["'a'", "abc-1, abc-2", "parent="],
    ),
    (errors.ConfigError("one", "two"), {"problems": ("one", "two")}, ["one\ntwo"]),
    (
        errors.StoreUnavailable("sqlite:///x", "locked"),
        {"store": "sqlite:///x", "reason": "locked"},
        ["sqlite:///x", "locked"],
    ),
    (
        errors.NotStartable("x: no such program", 127),
        {"reason": "x: no such program", "exit_code": 127},
        ["x: no such program"],
    ),
    (
        errors.QueueFull(10, 10),
        {"waiting": 10, "max_jobs": 10},
        ["10 jobs wait", "queue.max_jobs is 10"],
    ),
    (errors.NoSuchJob(16), {"job": 16}, ["no job 16", "headway jobs"]),
]


@pytest.mark.parametrize(
    ("error", "fields", "said"), EXAMPLES, ids=lambda part: type(part).__name__
)
def test_an_error_keeps_its_fields_and_survives_pickling(
    error: HeadwayError, fields: dict[str, object], said: list[str]
) -> None:
    """Sent to another process or copied, it says the same."""
    for same in (error, pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301
        assert type(same) is type(error)
        assert {name: getattr(same, name) for name in fields} == fields
        assert str(same) == str(error)
        for words in said:
            assert words in str(same)
        assert isinstance(same, HeadwayError)


def test_errors_are_also_what_python_calls_them() -> None:
    """Who catches the usual ones catches ours."""
    assert issubclass(errors.QueueTimeout, TimeoutError)
    assert issubclass(errors.ConfigError, ValueError)


def test_every_error_is_public_and_tested_here() -> None:
    """A new one has to be exported and shown above."""
    defined = {
        thing
        for thing in vars(errors).values()
        if isinstance(thing, type) and issubclass(thing, HeadwayError)
    }

    assert all(getattr(headway, error.__name__) is error for error in defined)
    assert {error.__name__ for error in defined} <= set(headway.__all__)
    assert {type(error) for error, _, _ in EXAMPLES} == defined - {HeadwayError}


def test_windows_is_refused_with_a_way_out() -> None:
    """A clear line instead of a missing module somewhere inside."""
    program = "import sys; sys.platform = 'win32'; import headway"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)

    assert b"ImportError: Headway runs on Linux and macOS" in done.stderr
    assert b"WSL" in done.stderr


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda text: headway.Governor("memory://").slot("k", task=text), "task must be"),
        (lambda text: headway.Governor("memory://").slot(text), "key"),
        (lambda text: headway.Governor("memory://").slot("k", timeout=text), "timeout"),
        (lambda text: headway.Governor("memory://").slot("k", weight=text), "weight"),
        (lambda text: headway.Governor("memory://", limits={"k": text}), "k"),
        (headway.Governor, "store"),
    ],
    ids=["task", "key", "timeout", "weight", "limit", "store"],
)
def test_a_very_long_value_is_not_repeated_whole(make: Callable[[Any], object], said: str) -> None:
    """An error says what is wrong with a value of a million characters in a few lines."""
    with pytest.raises(errors.ConfigError, match=said) as refused:
        make("x" * 1_000_000)
    message = str(refused.value)
    assert len(message) <= 2000
    assert errors.ConfigError(*refused.value.problems).problems == refused.value.problems


def test_what_mends_it_is_kept_after_a_very_long_value() -> None:
    """Beginning and end of a message stay, and it says how much is missing."""
    message = str(errors.ConfigError(f"wrong: {'x' * 5000}; write it shorter"))
    assert message.startswith("wrong: xxx")
    assert message.endswith("xxx; write it shorter")
    assert "3125 characters left out" in message
