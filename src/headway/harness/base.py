"""One way to run agent programs: guarded, isolated, watched, and with answers that are true."""

from __future__ import annotations

import inspect
import os
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headway import aio, config, durations, keys, limits
from headway.errors import ConfigError
from headway.governor import Governor
from headway.harness import blocking
from headway.harness.execution import Execution
from headway.harness.listening import JsonLines
from headway.harness.order import order, word
from headway.programs import can_be_passed_on, check_variables
from headway.telling import warn
from headway.watchdogs import Chosen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Unpack

    from headway.harness.attempt import Listener
    from headway.harness.order import Options, Order
    from headway.harness.records import Record
    from headway.harness.result import Result
    from headway.harness.story import Story

DEFAULT_CONCURRENT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """How a program is called: its words, what it reads, and variables unless they are set."""

    words: list[str]
    # Read by the program from its standard input; None leaves that empty.
    prompt: str | None = None
    environ: dict[str, str] = field(default_factory=dict)


class Harness:
    """Runs prompts through one agent program, never more than ``max_concurrent`` at once.

    With ``governor`` each run also takes a slot on ``agent/<program>/<model>`` there, so it
    counts on ``agent/<program>`` and ``agent`` beside everything else that uses this store.
    One object serves all threads and event loops of a process.

    A class for another program says its name, how it is called, and what its lines mean.
    """

    # The program's name, which is its key: agent/<program>.
    program: str
    # How people get it.
    install_hint = ""

    def __init__(
        self,
        *,
        model: str | None = None,
        max_concurrent: int | str | None = None,
        governor: Governor | None = None,
        executable: str | os.PathLike[str] | None = None,
        arguments: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        auto_approve: bool = False,
        grace: float | str = "5s",
    ) -> None:
        self.model, self.governor = word("model", model), governor
        self.executable = os.fspath(executable or self.program)
        if isinstance(arguments, str):
            raise ConfigError(f"arguments must be a list of words, got {arguments!r}")
        given: list[object] = [*arguments]
        for one in given:
            if not isinstance(one, str) or not can_be_passed_on(one):
                raise ConfigError(f"arguments must be texts without a NUL, got {one!r}")
        self.arguments, self.env = list(arguments), check_variables("env", env or {})
        # Whether the agent may use its tools without asking; nobody is there who could answer.
        self.auto_approve = auto_approve
        self.grace_seconds = durations.seconds(grace, name="grace")
        # How the caller writes an option, for what watchdogs say.
        self.spelled: Callable[[str], str] = lambda name: name
        self._doubted: set[str] = set()
        most = _concurrent(max_concurrent)
        most = limits.UNLIMITED if config.is_off() else most
        own = {"agent": limits.UNLIMITED, self.key(None): most}
        self.guard = Governor("memory://", limits=own)
        # Otherwise the thread that looks after those who wait would stay.
        weakref.finalize(self, self.guard.close).atexit = False

    # -- what a program's own file says -------------------------------------------------------

    def invocation(self, order: Order, model: str | None) -> Invocation:
        """How the program is called for this order."""
        raise NotImplementedError

    def read(self, record: Record, story: Story) -> None:
        """Tell the story what one line of the program's output means."""
        raise NotImplementedError

    def read_error(self, line: str, story: Story) -> None:
        """Tell the story what a line on the program's standard error means, if anything."""

    def listener(self, story: Story) -> Listener:
        """What takes the program's output in."""
        return JsonLines(story, self.read, self.read_error)

    def preparation(self, program: str, environ: Mapping[str, str]) -> list[str] | None:
        """A command to be run before the program, if it needs that now."""
        del program, environ
        return None

    def cannot_resume(self, session: str) -> str | None:
        """Why the program must not be started for this session; None if it may."""
        del session
        return None

    def resumed_id(self, order: Order) -> str | None:
        """The id that the session must report if the order continues one; None if any will do.

        A program that reports another id has begun a new session, without what was said before.
        """
        del order
        return None

    def llm_key(self, model: str | None) -> str | None:
        """The key of the model's provider, if it can be told."""
        del model
        return None

    # -- for everybody ------------------------------------------------------------------------

    @property
    def keeper(self) -> Governor:
        """Whose lease a run is known by, and whose settings count for it."""
        return self.governor or self.guard

    def chosen(self, order: Order) -> Chosen:
        """The watchdogs of a run: the order's own, and else those of the settings."""
        return Chosen(self.keeper.settings, order.watch, self.spelled)

    def key(self, model: str | None) -> str:
        """What a run with this model counts on."""
        return keys.agent_key(self.program, model)

    async def aexecute(self, prompt: str, **options: Unpack[Options]) -> Result:
        """Have the agent do something, and answer when it is over and nothing of it runs.

        Whatever becomes of the agent is in the result; errors are raised for wrong arguments
        and unusable stores, by the caller's own ``on_event``, and if the task is cancelled.
        """
        aio.refuse_other_loops("Calls of aexecute", "execute in a thread")
        on_event = options.get("on_event")
        if inspect.iscoroutinefunction(on_event) or not (on_event is None or callable(on_event)):
            raise ConfigError(f"on_event must be a plain function, got {on_event!r}")
        checked = order(prompt, self.model, options, self.keeper.settings)
        self._flag(checked)
        execution = Execution(self, checked, on_event)
        return await execution.run(options.get("cancellation"))

    def _flag(self, order: Order) -> None:
        """Warn of watchdogs that would end usual work, once each."""
        for doubt in self.chosen(order).doubts():
            if doubt not in self._doubted:
                self._doubted.add(doubt)
                warn(doubt)

    def execute(self, prompt: str, **options: Unpack[Options]) -> Result:
        """``aexecute`` for plain code; blocks until it is over."""
        return blocking.run(lambda: self.aexecute(prompt, **options))

    def environ(self, order: Order, invocation: Invocation) -> dict[str, str]:
        """What the program is started with: all of ours, and what was set for it.

        As a shell would, it says where we are: some programs believe that more than the system.
        """
        here = {"PWD": order.directory}
        return {**invocation.environ, **os.environ, **here, **self.env, **order.env}


def _concurrent(most: object) -> int | str:
    """The guard's limit. It cannot be left out, and nothing but the one word lifts it."""
    if most is None:
        return DEFAULT_CONCURRENT
    if isinstance(most, int) and not isinstance(most, bool) and most <= 0:
        warn(
            f"max_concurrent = {most} would let nothing run; using the default of"
            f" {DEFAULT_CONCURRENT} (headway.UNLIMITED means no limit)"
        )
        return DEFAULT_CONCURRENT
    limits.slots(most, where="max_concurrent")
    assert isinstance(most, int | str)
    return most
