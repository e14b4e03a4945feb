"""What somebody wants to have run: checked before it is kept, and kept as it was."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.jobs.boards import keep, open_board, order, query

from headway.errors import ConfigError
from headway.jobs.orders import Order, Surroundings, packed, unpacked

if TYPE_CHECKING:
    from pathlib import Path

    from headway.jobs.board import Board

BAD = [
    ("priority", "2", "priority"),
    ("priority", 101, "101"),
    ("priority", -101, "-101"),
    ("priority", 1.5, "1.5"),
    ("priority", True, "True"),
    ("priority", None, "None"),
    ("weight", 0, "weight"),
    ("weight", -1, "-1"),
    ("weight", 1_000_001, "1000001"),
    ("weight", float("nan"), "nan"),
    ("weight", False, "False"),
    ("retries", -1, "retries"),
    ("retries", 1001, "1001"),
    ("retries", True, "True"),
    ("retries", "3", "'3'"),
    ("task", "", "task"),
    ("task", 5, "5"),
    ("task", "x" * 1001, "xxx"),
    ("task", "a\udcff", "task"),
    ("expire", "soon", "'soon'"),
    ("expire", -1, "expire"),
    ("expire", 0, "expire"),
    ("expire", "0s", "'0s'"),
    ("expire", True, "True"),
    ("expire", float("nan"), "nan"),
    ("expire", float("inf"), "inf"),
    ("hold", "yes", "hold.*'yes'"),
    ("hold", 1, "hold"),
    ("after", [0], "after.*0"),
    ("after", ["16"], "'16'"),
    ("after", [True], "True"),
    ("after", 16, "after.*16"),
    ("after", "16", "after.*'16'"),
    ("after", [2**63], str(2**63)),
    ("dedupe", "", "dedupe.*''"),
    ("dedupe", "x" * 201, "dedupe.*xxx"),
    ("dedupe", 5, "dedupe.*5"),
    ("dedupe", "a\udcff", "dedupe"),
    ("notify_on", ["never"], "'never'"),
    ("notify_on", "failed", "notify_on.*'failed'"),
    ("notify_on", [3], "notify_on.*3"),
    ("max_runtime", "long", "max_runtime.*'long'"),
    ("max_runtime", 0, "max_runtime.*0"),
    ("max_runtime", True, "max_runtime"),
    ("idle_warn", -5, "idle_warn.*-5"),
    ("idle_warn", "0s", "idle_warn.*'0s'"),
    ("idle_kill", 0.0, "idle_kill.*0"),
    ("idle_kill", [], "idle_kill"),
    ("max_output", 0, "max_output.*0"),
    ("max_output", "many", "'many'"),
    ("max_output", 1.5, "1.5"),
    ("max_output", True, "True"),
    ("keys", "", "key ''"),
    ("keys", ["a//b"], "'a//b'"),
    ("keys", ["llm/*"], r"llm/\*"),
    ("keys", [5], "5"),
    ("keys", 5, "keys.*5"),
    ("keys", ["a\nb"], "control character"),
    ("umask", -1, "umask.*-1"),
    ("umask", 0o1000, "umask"),
    ("umask", "022", "'022'"),
    ("directory", 5, "directory.*5"),
    ("directory", "", "directory"),
    ("directory", "a\0b", "directory"),
    ("directory", "\ud800", "directory"),
    ("environ", {"A": 1}, "environ.*A"),
    ("environ", {"A": "x\0B=y"}, "environ.*A"),
    ("environ", {"A\0": "x"}, "environ.*A"),
    ("environ", {"A=B": "x"}, "environ.*A=B"),
    ("environ", {"": "x"}, "environ.*''"),
    ("environ", {b"A": "x"}, "environ.*A"),
    ("environ", {"A": "\ud800"}, "environ.*A"),
    ("environ", "A=1", "environ"),
]


@pytest.mark.parametrize(
    ("option", "value", "words"), BAD, ids=lambda value: repr(value)[:30].replace("\\", "/")
)
def test_a_bad_value_is_refused_by_name(option: str, value: object, words: str) -> None:
    """With what was given, so that nobody has to search for it."""
    bad: dict[str, Any] = {option: value}
    with pytest.raises(ConfigError, match=words):
        Order(["true"], **bad)


@pytest.mark.parametrize(
    "command", ["ls -l", [], [""], ["a", 5], [b"a"], ["a\0b"], ["a", "\ud800"], None, 5, b"ls"]
)
def test_a_bad_command_is_refused(command: Any) -> None:
    """A command is a list of words."""
    with pytest.raises(ConfigError, match="command"):
        Order(command)


@pytest.mark.parametrize("url", ["secret-token", 5, "", None])
def test_a_bad_address_is_refused_without_showing_it(url: Any) -> None:
    """People mistype secrets as well."""
    with pytest.raises(ConfigError, match="notify must be a URL") as caught:
        Order(["true"], notify=[url])
    assert "secret" not in str(caught.value)


def test_what_is_good_is_taken() -> None:
    """The largest and the smallest of everything."""
    for priority in (-100, 100):
        assert Order(["a"], priority=priority).priority == priority
    assert Order(["a"], weight=1_000_000, retries=1000).weight == 1_000_000
    assert Order(["a"], expire="never").expire_seconds == float("inf")
    assert Order(["a"], umask=0o777).umask == 0o777
    assert Order(["a"], notify="json://x", notify_on=["killed"]).notify == ("json://x",)
    assert Order(["a"], notify_on=[]).notify_on == ()
    assert Order(("a", "b")).command == ["a", "b"]
    assert Order(["a"], max_runtime="off", max_output="off").watch == {
        "max_runtime_seconds": None,
        "max_output_bytes": None,
    }


def test_without_keys_it_counts_on_its_program() -> None:
    """By its name, wherever it is; and every ancestor counts as well."""
    plain = Order(["/opt/agents/my agent", "x"])
    assert plain.keys == ("agent/my%20agent",)
    assert plain.path == ("agent/my%20agent", "agent")
    assert Order(["a"], keys="llm/x").keys == ("llm/x",)
    assert Order(["a"], keys=["llm/x", "agent/y"]).path == ("agent/y", "llm/x", "agent", "llm")


# -- watchdogs that shadow each other --------------------------------------------------------

SHADOWS = [
    ("idle_kill", "max_runtime"),
    ("idle_warn", "max_runtime"),
    ("idle_warn", "idle_kill"),
]


@pytest.mark.parametrize(("later", "earlier"), SHADOWS)
@pytest.mark.parametrize("seconds", [(10, 10), (10, 9)])
def test_timers_that_shadow_each_other_are_refused_with_both_names(
    home: Path, later: str, earlier: str, seconds: tuple[int, int]
) -> None:
    """Between two options of a job, or one of them and a setting, either way."""
    slow, fast = seconds
    variable = {name: f"HEADWAY_WATCHDOG_{name.upper()}" for name in (later, earlier)}
    cases: list[tuple[dict[str, str], dict[str, Any]]] = [
        ({}, {later: slow, earlier: fast}),
        ({variable[later]: f"{slow}s"}, {earlier: fast}),
        ({variable[earlier]: f"{fast}s"}, {later: slow}),
    ]
    for environ, options in cases:
        board = open_board(home, **environ)
        with pytest.raises(ConfigError) as caught:
            board.submit([order(**options)])
        problem = str(caught.value)
        assert f"{later} ({slow} s)" in problem
        assert f"{earlier} ({fast} s)" in problem
        assert not board.database.exists()


@pytest.mark.parametrize(("later", "earlier"), SHADOWS)
def test_timers_that_do_not_are_kept(home: Path, later: str, earlier: str) -> None:
    """A longer one behind a shorter one; and one that a job takes away shadows nothing."""
    board = open_board(home, **{f"HEADWAY_WATCHDOG_{earlier.upper()}": "5s"})
    both: dict[str, Any] = {later: 9, earlier: 10}
    other: dict[str, Any] = {later: 9, earlier: "off"}

    for options in (both, other):
        board.submit([order(**options)])


# -- kept as it was --------------------------------------------------------------------------


def test_the_marks_of_a_surrounding_lease_are_taken_out(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job neither borrows from who submits it nor dies with it, whoever hands them over."""
    marks = {"HEADWAY_LEASE": "h-1", "HEADWAY_TOKEN": "7", "HEADWAY_TASK": "t"}
    marks["HEADWAY_JOB"] = "3.1"
    for name, value in {**marks, "KEPT": "yes"}.items():
        monkeypatch.setenv(name, value)
    given = board.submit([order(environ={**marks, "KEPT": "no"}), Order(["true"])])

    for kept, wanted in zip(given, ("no", "yes"), strict=True):
        beginning = board.begin(kept.id, holder="h", lease="l")
        assert beginning is not None
        assert not marks.keys() & beginning.environ.keys()
        assert beginning.environ["KEPT"] == wanted
        assert ("HEADWAY_HOME" in beginning.environ) == (wanted == "yes")


@pytest.mark.parametrize(
    "words",
    [
        ["a", "", " ", "two words", "new\nline", "\t", "'\"$`\\", "ünï🚀"],
        ["a", os.fsdecode(b"\xff\xfe"), "=", "--"],
        [os.fsdecode(b"/tmp/\xe9/x")],
    ],
)
def test_every_argument_arrives_as_it_was(board: Board, words: list[str]) -> None:
    """Blanks, line feeds, empty ones, and bytes that are no text."""
    (kept,) = board.submit([order(*words)])

    assert board.wishes(f"id = {kept.id}")[0].command == words
    beginning = board.begin(kept.id, holder="h", lease="l")
    assert beginning is not None
    assert beginning.command == words


names = st.text(
    st.characters(blacklist_characters="\0=", blacklist_categories=["Cs"]), min_size=1
).filter(lambda name: not name.startswith("HEADWAY"))
values = st.binary().map(lambda value: os.fsdecode(value.replace(b"\0", b"")))


@given(st.dictionaries(names, values))
def test_an_environment_survives_whatever_is_in_it(environ: dict[str, str]) -> None:
    """Values need not be text, and may contain anything but a zero byte."""
    assert unpacked(packed(environ)) == environ
    assert unpacked(Order(["a"], environ=environ).environ or b"") == environ


def test_what_is_not_said_is_as_it_is_here(
    board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Directory, environment and umask of who submits, at the time of it."""
    directory = os.path.join(os.fsencode(tmp_path), b"d\xff \n")
    os.mkdir(directory)
    monkeypatch.chdir(os.fsdecode(directory))
    monkeypatch.setenv("BYTES", os.fsdecode(b"\xff\n="))
    before = os.umask(0o031)
    try:
        (kept,) = board.submit([Order(["true"])])
        assert os.umask(0o031) == 0o031
    finally:
        os.umask(before)
    monkeypatch.chdir("/")

    beginning = board.begin(kept.id, holder="h", lease="l")
    assert beginning is not None
    assert os.fsencode(beginning.directory) == directory
    assert beginning.umask == 0o031
    assert beginning.environ["BYTES"] == os.fsdecode(b"\xff\n=")
    assert beginning.environ["PATH"] == os.environ["PATH"]


def test_what_is_said_counts(board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative directory is that of who submits; an empty environment is empty."""
    monkeypatch.chdir(tmp_path)
    (kept,) = board.submit([Order(["true"], directory="sub/..", environ={}, umask=0o123)])

    beginning = board.begin(kept.id, holder="h", lease="l")
    assert beginning is not None
    assert (beginning.directory, beginning.umask) == (str(tmp_path), 0o123)
    assert beginning.environ == {}


def test_a_directory_that_is_gone_is_told(
    board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless another one was named."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    with pytest.raises(ConfigError, match="directory"):
        board.submit([Order(["true"])])
    board.submit([Order(["true"], directory="/")])
    monkeypatch.chdir("/")


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="it is told there")
def test_the_umask_is_not_changed_under_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """That one may be making a file; only a system that does not tell it is asked so."""
    asked: list[int] = []
    umask, over = os.umask, threading.Event()

    def note(mask: int) -> int:
        asked.append(mask)
        return umask(mask)

    monkeypatch.setattr(os, "umask", note)
    thread = threading.Thread(target=over.wait)
    thread.start()
    before = umask(0o026)
    try:
        assert Surroundings().umask == 0o026
        assert asked == []
        monkeypatch.setattr("builtins.open", _no_proc)
        assert Surroundings().umask == 0o026
        assert umask(0o026) == 0o026
    finally:
        monkeypatch.undo()
        umask(before)
        over.set()
        thread.join(60)


def _no_proc(*_: object, **__: object) -> None:
    raise OSError("there is no /proc here")


def test_an_environment_is_kept_once_however_many_jobs_have_it(board: Board) -> None:
    """Of threads that submit at once, too."""

    def submit() -> None:
        for _ in range(5):
            keep(board, environ={"A": "1"})

    threads = [threading.Thread(target=submit) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    keep(board, environ={"A": "2"})

    variables = query(board, "select variables from environments order by id")
    assert variables == [(b"A=1",), (b"A=2",)]
    assert query(board, "select count(*) from jobs") == [(16,)]
