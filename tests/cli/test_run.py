"""``headway run``: waiting, codes, what the command gets, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.cli.kit import PROGRAM, until

if TYPE_CHECKING:
    from tests.cli.kit import Shell

_SHOW_ENVIRONMENT = (
    "import json, os;"
    "print(json.dumps({k: v for k, v in os.environ.items() if k.startswith('HEADWAY_')}))"
)
# The two after these are the C library's own.
_ORDINARY_SIGNALS = (1 << 31) - 1


def test_the_commands_output_and_code_are_passed_on(shell: Shell) -> None:
    """As if the command had been run alone."""
    done = shell.run("run", "--", "sh", "-c", "echo out; echo err >&2; exit 7")

    assert (done.stdout, done.stderr, done.returncode) == ("out\n", "err\n", 7)


def test_a_command_ended_by_a_signal_gives_128_and_its_number(shell: Shell) -> None:
    """As a shell would say it."""
    assert shell.run("run", "--", "sh", "-c", "kill -USR1 $$").returncode == 128 + 10


def test_the_commands_own_options_are_left_alone(shell: Shell) -> None:
    """Nothing behind the program's name is read, with or without two dashes."""
    done = shell.run("run", "--on", "k", "echo", "--on", "x", "--", "-q", "--help")

    assert done.stdout == "--on x -- -q --help\n"


def test_input_reaches_the_command(shell: Shell) -> None:
    """Its standard input is the caller's."""
    done = shell.run("run", "--", "cat", stdin=None, input="hello")

    assert done.stdout == "hello"


def test_the_command_learns_home_lease_and_task(shell: Shell) -> None:
    """So that what it starts goes ahead on its slot, in the same home."""
    done = shell.run("run", "--task", "issue-16", "--", sys.executable, "-c", _SHOW_ENVIRONMENT)

    seen = json.loads(done.stdout)
    assert seen["HEADWAY_HOME"] == str(shell.home)
    assert seen["HEADWAY_TASK"] == "issue-16"
    assert seen["HEADWAY_LEASE"].endswith("-1")
    assert int(seen["HEADWAY_TOKEN"]) > 0


def test_without_on_it_counts_on_the_program(shell: Shell) -> None:
    """``agent/<program name>``, under the default limit of ``agent``."""
    running = shell.start("run", "--task", "it", "--", "/bin/cat", stdin=subprocess.PIPE)
    until(shell.holds(1), "the start")

    (lease,) = shell.status()["leases"]
    running.communicate("")
    assert (lease["keys"], lease["task"], lease["weight"]) == (["agent/cat"], "it", 1)
    assert lease["holder"]["command"] == "headway run /bin/cat"


def test_several_keys_and_a_weight_are_counted(shell: Shell) -> None:
    """All or none, on each of them."""
    words = ("--on", "a/b", "--on", "c", "--weight", "2")
    running = shell.start("run", *words, "--", "cat", stdin=subprocess.PIPE)
    until(shell.holds(1), "the start")

    used = {limit["key"]: limit["used"] for limit in shell.status()["limits"]}
    running.communicate("")
    assert {key: used[key] for key in ("a", "a/b", "c")} == {"a": 2, "a/b": 2, "c": 2}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--", "no-such-program"], 127, "no-such-program: no such program"),
        (["--", "/no/such/program"], 127, "/no/such/program: no such program"),
        (["--", "/etc/passwd"], 126, "/etc/passwd: is not a program"),
        (["--", "/"], 126, "/: is not a program"),
        (["--on", "a//b", "--", "true"], 64, "empty segment"),
        (["--on", "llm/*", "--", "true"], 64, "only a limit may have"),
        (["--weight", "0", "--", "true"], 64, "--weight must be a whole number"),
        (["--weight", "x", "--", "true"], 64, "--weight must be a whole number"),
        (["--priority", "101", "--", "true"], 64, "--priority must be a whole number"),
        (["--timeout", "soon", "--", "true"], 64, "--timeout must be a duration"),
        (["--task", "x" * 5000, "--", "true"], 64, "task"),
        (["--no-wait=1", "--", "true"], 64, "--no-wait takes no value"),
        (["--on", "--", "true"], 64, "--on needs a value"),
        (["--wait", "--", "true"], 64, "there is no option --wait"),
        (["--"], 64, "what shall be run?"),
        ([], 64, "what shall be run?"),
    ],
)
def test_what_cannot_be_run_is_refused(
    shell: Shell, words: list[str], code: int, said: str
) -> None:
    """A clear line, the usual code, and nothing left behind."""
    done = shell.run("run", *words)

    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    status = shell.status()
    assert (status["leases"], status["waiting"]) == ([], [])


def test_a_program_that_cannot_be_started_frees_its_slot(shell: Shell) -> None:
    """A script whose interpreter is missing looks fine until it is started."""
    script = shell.directory / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o700)

    done = shell.run("run", "--on", "k", "--", str(script))

    assert done.returncode == 126
    assert f"{script}: No such file or directory" in done.stderr
    assert shell.status()["leases"] == []


def test_a_script_without_its_first_line_runs(shell: Shell) -> None:
    """By the shell, as when it is called from one."""
    script = shell.directory / "script"
    script.write_text("echo $0 $1\n")
    script.chmod(0o700)

    assert shell.run("run", "--", str(script), "x").stdout == f"{script} x\n"


def test_it_waits_its_turn_and_says_so(shell: Shell) -> None:
    """One plain line at the start, one at each change, one when it runs."""
    shell.run("limits", "set", "k", "1")
    first = shell.start("run", "--on", "k", "--task", "one", "--", "cat", stdin=subprocess.PIPE)
    until(shell.holds(1), "the start")
    second = shell.start("run", "--on", "k", "--task", "two", "--", "cat", stdin=subprocess.PIPE)
    until(shell.waits(1), "the second one's queueing")
    third = shell.start("run", "--on", "k", "--", "echo", "third ran")
    until(shell.waits(2), "the third one's queueing")
    assert third.stderr is not None
    assert (
        third.stderr.readline() == "headway: waiting for k, which is full: place 2, held by one\n"
    )

    first.communicate("")
    assert third.stderr.readline().startswith("headway: place 1")
    second.communicate("")
    out, rest = third.communicate()

    assert out == "third ran\n"
    assert rest.startswith("headway: running after ")
    assert third.returncode == 0


def test_quiet_waits_silently(shell: Shell) -> None:
    """Not a word, and still in line."""
    shell.run("limits", "set", "k", "1")
    first = shell.start("run", "--on", "k", "--", "cat", stdin=subprocess.PIPE)
    until(shell.holds(1), "the start")
    second = shell.start("run", "-q", "--on", "k", "--", "true")
    until(shell.waits(1), "the queueing")
    first.communicate("")

    assert second.communicate() == ("", "")
    assert second.returncode == 0


def test_a_dead_holder_is_told_in_a_line_of_ours(shell: Shell) -> None:
    """Whose slot it was, in the form of all that is said."""
    shell.run("limits", "set", "k", "1")
    holder = shell.hold("k", task="one")
    until(shell.holds(1), "the start")
    waiting = shell.start("run", "--on", "k", "--", "true")
    assert waiting.stderr is not None
    assert "held by one" in waiting.stderr.readline()
    holder.kill()

    lines = waiting.communicate()[1].splitlines()
    assert any(line.startswith("headway: warning: reclaimed ") for line in lines)
    assert all(line.startswith("headway: ") for line in lines)


def test_quiet_is_silent_about_the_dead_as_well(shell: Shell) -> None:
    """What was given back for a killed process is news for the others."""
    shell.run("limits", "set", "k", "1")
    holder = shell.hold("k")
    until(shell.holds(1), "the start")
    waiting = shell.start("run", "-q", "--on", "k", "--", "true")
    until(shell.waits(1), "the queueing")
    holder.kill()

    assert waiting.communicate() == ("", "")
    assert waiting.returncode == 0


def test_no_wait_says_what_is_full_and_who_holds_it(shell: Shell) -> None:
    """Exit 75, and nothing is queued."""
    shell.run("limits", "set", "k", "1")
    holder = shell.start("run", "--on", "k/x", "--task", "one", "--", "cat", stdin=subprocess.PIPE)
    until(shell.holds(1), "the start")

    done = shell.run("run", "--no-wait", "--on", "k/y", "--", "echo", "ran")

    assert (done.returncode, done.stdout) == (75, "")
    assert "no slot free on k: 1 of 1 in use" in done.stderr
    assert "held by one for " in done.stderr
    assert "): headway run cat" in done.stderr
    assert shell.status()["waiting"] == []
    holder.communicate("")


def test_a_timeout_in_the_queue_gives_124(shell: Shell) -> None:
    """It names the key, who holds it, and where to look."""
    shell.run("limits", "set", "k", "1")
    holder = shell.start("run", "--on", "k", "--task", "one", "--", "cat", stdin=subprocess.PIPE)
    until(shell.holds(1), "the start")

    done = shell.run("run", "--timeout", "300ms", "--on", "k", "--", "echo", "ran")

    assert (done.returncode, done.stdout) == (124, "")
    assert "no slot on k within 0.3 s" in done.stderr
    assert "held by one for " in done.stderr
    assert "headway status k" in done.stderr
    assert shell.status()["waiting"] == []
    holder.communicate("")


@pytest.mark.parametrize(("option", "code"), [("--no-wait", 75), ("--timeout=200ms", 124)])
def test_a_pause_is_named_as_what_blocks(shell: Shell, option: str, code: int) -> None:
    """Of the key itself or of one above it, with the way out; nobody holds anything."""
    shell.run("pause", "llm")

    done = shell.run("run", "-q", option, "--on", "llm/openai", "--", "echo", "ran")

    assert (done.returncode, done.stdout) == (code, "")
    assert "llm is paused; to let people in again: headway resume llm" in done.stderr
    assert "in use" not in done.stderr
    assert "held by" not in done.stderr


def test_someone_elses_cancel_gives_125(shell: Shell) -> None:
    """The command is not started, and the line moves up."""
    shell.run("limits", "set", "k", "1")
    holder = shell.start("run", "--on", "k", "--", "cat", stdin=subprocess.PIPE)
    until(shell.holds(1), "the start")
    waiting = shell.start("run", "--on", "k", "--task", "two", "--", "echo", "ran")
    until(shell.waits(1), "the queueing")

    assert shell.run("cancel", shell.status()["waiting"][0]["id"]).returncode == 0
    out, said = waiting.communicate()

    assert (waiting.returncode, out) == (125, "")
    assert "was cancelled while it waited" in said
    assert shell.status()["waiting"] == []
    holder.communicate("")


def test_a_slot_taken_back_by_hand_is_told_and_the_command_goes_on(shell: Shell) -> None:
    """Only the count is gone."""
    running = shell.start("run", "--on", "k", "--", "cat", stdin=subprocess.PIPE)
    until(shell.holds(1), "the start")

    assert shell.run("release", "--force", shell.status()["leases"][0]["id"]).returncode == 0
    assert running.stderr is not None
    assert running.stderr.readline().startswith("headway: error: lost ")
    out, _ = running.communicate("still here")

    assert (out, running.returncode) == ("still here", 0)


def test_quiet_is_not_silent_about_a_lost_slot(shell: Shell) -> None:
    """That is no matter of waiting: the work now runs beside someone else's."""
    running = shell.start("run", "-q", "--on", "k", "--", "cat", stdin=subprocess.PIPE)
    until(shell.holds(1), "the start")
    lease = shell.status()["leases"][0]["id"]

    assert shell.run("release", "--force", lease).returncode == 0
    assert running.stderr is not None
    assert running.stderr.readline() == f"headway: error: lost {lease} on k: taken back by hand\n"
    running.communicate("")


def test_run_inside_run_goes_ahead_on_the_same_slot(shell: Shell) -> None:
    """At limit 1 the inner one would wait for ever."""
    shell.run("limits", "set", "k", "1")

    inner = (PROGRAM, "run", "--on", "k", "--", "echo", "inner ran")
    done = shell.run("run", "--on", "k", "--", *inner)

    assert (done.stdout, done.returncode) == ("inner ran\n", 0)


def test_a_bad_setting_is_told_with_its_fix(shell: Shell) -> None:
    """Exit 78; all problems at once."""
    shell.home.mkdir()
    (shell.home / "config.toml").write_text('[limits]\nagent = "2"\nllm = 0\n')

    done = shell.run("run", "--", "echo", "ran")

    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr.count("config.toml") == 2


def test_a_home_that_cannot_be_used_is_told(shell: Shell) -> None:
    """Exit 69; the command is not run without its limit."""
    shell.home.write_text("a file")

    done = shell.run("run", "--", "echo", "ran")

    assert (done.returncode, done.stdout) == (69, "")
    assert str(shell.home) in done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_do_no_harm(shell: Shell, closed: str) -> None:
    """Not even the one that would be the first descriptor to be reused."""
    script = f"{PROGRAM} run --on k -- sh -c 'sleep 0.1; exit 3' {closed}"
    done = subprocess.run(["sh", "-c", script], env=shell.environ, check=False)

    assert done.returncode == 3


@pytest.mark.linux
def test_a_command_runs_even_if_nobody_can_be_told_that_it_waited(shell: Shell) -> None:
    """A full disk behind stderr is no reason not to run it, nor to change its code."""
    shell.run("limits", "set", "k", "1")
    first = shell.start("run", "--on", "k", "--", "cat", stdin=subprocess.PIPE)
    until(shell.holds(1), "the start")
    with open("/dev/full", "w") as full:
        second = shell.start("run", "--on", "k", "--", "sh", "-c", "exit 3", stderr=full)
        missing = shell.start("run", "--", "no-such-program", stderr=full)
    until(shell.waits(1), "the queueing")
    first.communicate("")

    assert (second.wait(), missing.wait()) == (3, 127)


def test_ignored_signals_stay_ignored_and_the_others_are_as_usual(shell: Shell) -> None:
    """``nohup`` in front works, and a broken pipe ends the command as ever."""
    show = "grep -E 'Sig(Ign|Blk)' /proc/self/status"
    script = f"trap '' HUP; {show}; exec {PROGRAM} run --on k -- {show}"
    done = subprocess.run(
        ["sh", "-c", script], env=shell.environ, capture_output=True, text=True, check=True
    )

    masks = [int(line.split()[1], 16) & _ORDINARY_SIGNALS for line in done.stdout.splitlines()]
    assert masks == [0, 1, 0, 1]


@pytest.mark.linux
def test_the_command_inherits_no_descriptor(shell: Shell) -> None:
    """Neither sockets nor locks of ours."""
    with open(os.devnull) as kept:
        os.set_inheritable(kept.fileno(), True)
        done = shell.run("run", "--", "ls", "/proc/self/fd", close_fds=False)
        mine = {0, 1, 2} | {fd for fd in map(int, os.listdir("/proc/self/fd")) if _is_inherited(fd)}

    seen = {int(name) for name in done.stdout.split()}
    assert mine <= seen
    assert len(seen) == len(mine) + 1  # the directory that ls reads


def _is_inherited(descriptor: int) -> bool:
    try:
        return os.get_inheritable(descriptor)
    except OSError:  # that of the directory which was listed
        return False
