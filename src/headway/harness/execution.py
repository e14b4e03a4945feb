"""One call of ``execute``: waits for its slots, runs its attempts, and says how it ended."""

from __future__ import annotations

import asyncio
import contextvars
import random
import time
import uuid
import weakref
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headway import events as engine
from headway import programs
from headway.errors import (
    AtCapacity,
    Cancelled,
    DeadlockRefused,
    HeadwayError,
    LeaseLost,
    NotStartable,
    QueueTimeout,
)
from headway.harness import events
from headway.harness.attempt import MARK, Attempt, Errand, Outcome, Stop
from headway.harness.events import Usage
from headway.harness.feed import Feed
from headway.harness.listening import PlainText
from headway.harness.result import Result
from headway.harness.scope import Scope
from headway.harness.story import Story
from headway.harness.verdict import verdict
from headway.harness.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.harness.attempt import Listener
    from headway.harness.base import Harness
    from headway.harness.events import AgentEvent
    from headway.harness.order import Order
    from headway.harness.result import Status
    from headway.harness.scope import Cancellation
    from headway.slot import Lease

_FIRST_DELAY_SECONDS = 1.0
_LONGEST_DELAY_SECONDS = 60.0
_NOT_STARTABLE = (programs.DENIED, programs.NOT_FOUND)


@dataclass(slots=True)
class Trial:
    """One attempt as far as it came."""

    model: str | None
    status: Status
    reason: str | None
    outcome: Outcome
    story: Story | None = None


class Execution:
    """One order, from the queue to its result."""

    def __init__(
        self, harness: Harness, order: Order, on_event: Callable[[AgentEvent], None] | None
    ) -> None:
        self._harness, self._order, self._on_event = harness, order, on_event
        self._scope = Scope()
        self._queued_since = 0.0
        self._waited_seconds = self._run_seconds = 0.0
        self._attempts = 0
        self._usage = Usage()
        self._last: Trial | None = None
        self._retry_after_seconds: float | None = None
        self._blocked_by = ("", "")
        self._context = contextvars.copy_context()
        self._has_callback_failed = False

    async def run(self, cancellation: Cancellation | None) -> Result:
        """Do it, until it is done, given up, or ended by somebody."""
        if cancellation is not None and cancellation.is_cancelled:
            return self._finish("cancelled", cancellation.reason)
        forget = cancellation.watch(self._scope.interrupt) if cancellation else lambda: None
        try:
            with self._scope:
                await asyncio.sleep(0)  # who was cancelled before never starts
                await self._try_until_done()
        finally:
            forget()
        if self._scope.trouble is not None:
            raise self._scope.trouble
        if self._scope.reason is not None and not (self._last and self._last.status == "succeeded"):
            return self._finish("cancelled", self._scope.reason)
        assert self._last is not None
        return self._finish(self._last.status, self._last.reason)

    async def _try_until_done(self) -> None:
        for model in self._order.models:
            for number in range(self._order.retries + 1):
                if self._last is not None:
                    await self._pause(number, model)
                self._last = await self._try(model)
                # Somebody may have ended it in the moment of its own end.
                if self._scope.reason is not None or not self._is_worth_repeating(self._last):
                    return

    def _is_worth_repeating(self, trial: Trial) -> bool:
        outcome, story = trial.outcome, trial.story
        return (
            trial.status in ("failed", "truncated")
            and story is not None  # else it was never started, and never will be
            # The next attempt would begin one more session that knows nothing.
            and not story.lost_session
            and outcome.stop is None
            and not (outcome.trouble and outcome.exit_code in _NOT_STARTABLE)
        )

    async def _pause(self, number: int, model: str | None) -> None:
        """Without a slot: wait as long as the provider said, or longer each time.

        Another model need not wait for the one that failed.
        """
        assert self._last is not None
        delay = self._retry_after_seconds if model == self._last.model else 0.0
        if delay is None:
            delay = min(_LONGEST_DELAY_SECONDS, _FIRST_DELAY_SECONDS * 2**number)
            delay *= random.uniform(0.5, 1.0)  # noqa: S311 - so that not all come back at once
        limited = self._last.story is not None and self._last.story.is_rate_limited
        self._tell(
            events.Retrying(
                task=self._order.task,
                by="headway",
                reason=self._last.reason or self._last.status,
                status=429 if limited else None,
                delay_seconds=delay,
                model=model,
            )
        )
        self._retry_after_seconds = None
        await asyncio.sleep(delay)

    async def _try(self, model: str | None) -> Trial:
        """One attempt, with slots of its own."""
        harness, order = self._harness, self._order
        trouble = harness.cannot_resume(order.session) if order.session else None
        if trouble:
            return Trial(model, "failed", trouble, Outcome(trouble=trouble))
        invocation = harness.invocation(order, model)
        environ = harness.environ(order, invocation)
        try:
            program = programs.find(invocation.words[0], environ, order.directory)
        except NotStartable as error:
            hint = f"; to install it: {harness.install_hint}" if harness.install_hint else ""
            outcome = Outcome(exit_code=error.exit_code, trouble=f"{error}{hint}")
            return Trial(model, "failed", outcome.trouble, outcome)
        self._attempts += 1
        self._queued_since = time.monotonic()
        async with AsyncExitStack() as stack:
            try:
                lease = await self._queue(stack, model)
            except (QueueTimeout, AtCapacity, DeadlockRefused, Cancelled) as error:
                return Trial(model, *self._turned_away(error), Outcome())
            finally:
                self._waited_seconds += time.monotonic() - self._queued_since
            if harness.keeper.settings.home:
                try:
                    environ |= lease.environ()
                except LeaseLost as error:
                    return Trial(model, "cancelled", str(error), Outcome())
            errand = Errand(
                program=program,
                words=[*invocation.words],
                environ={**environ, MARK: uuid.uuid4().hex},
                directory=order.directory,
                prompt=None if invocation.prompt is None else invocation.prompt.encode(),
                lifeline=lease.lifeline,
                grace_seconds=harness.grace_seconds,
            )
            trial = await self._prepare(errand, model, lease)
            return trial or await self._work(errand, model, lease, harness.listener)

    async def _queue(self, stack: AsyncExitStack, model: str | None) -> Lease:
        """The slot of our own guard, and then the shared one if there is a governor."""
        harness, order = self._harness, self._order
        lease = await stack.enter_async_context(
            harness.guard.slot(
                harness.key(model),
                task=order.task,
                priority=order.priority,
                timeout=order.timeout_seconds,
                wait=order.wait,
                on_wait=lambda event: self._tell_of_wait(event, reason="max_concurrent"),
            )
        )
        if harness.governor is None:
            return lease
        left = order.timeout_seconds
        if left is not None:
            left = max(0.0, left - (time.monotonic() - self._queued_since))
        return await stack.enter_async_context(
            harness.governor.slot(
                harness.key(model),
                task=order.task,
                weight=order.weight,
                priority=order.priority,
                timeout=left,
                wait=order.wait,
                on_wait=self._tell_of_wait,
            )
        )

    def _turned_away(self, error: HeadwayError) -> tuple[Status, str]:
        """What it means that the queue did not let us in."""
        timeout = self._order.timeout_seconds
        if isinstance(error, QueueTimeout) and timeout is not None:
            # The whole of it, of which the guard's queue took its part.
            return "timed_out", str(QueueTimeout(error.keys, timeout))
        return "cancelled" if isinstance(error, Cancelled) else "refused", str(error)

    async def _prepare(self, errand: Errand, model: str | None, lease: Lease) -> Trial | None:
        """Run what has to be run once before; whether that worked, the program itself will say."""
        words = self._harness.preparation(errand.program, errand.environ)
        if words is None:
            return None
        first = replace(errand, program=words[0], words=words, prompt=None)
        trial = await self._work(first, model, lease, PlainText, is_told=False)
        is_ended = trial.outcome.stop is not None or self._scope.reason is not None
        return trial if is_ended else None

    async def _work(
        self,
        errand: Errand,
        model: str | None,
        lease: Lease,
        listener: Callable[[Story], Listener],
        *,
        is_told: bool = True,
    ) -> Trial:
        """Run the program until nothing of it is left."""
        order, harness, is_told = self._order, self._harness, is_told and bool(self._on_event)
        ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        feed: Feed[AgentEvent | Outcome] = Feed(
            lambda thing: (
                ended.set_result(thing) if isinstance(thing, Outcome) else self._tell_beside(thing)
            )
        )
        tell: Callable[[AgentEvent], None] = feed.put if is_told else lambda _: None
        watch = Watch(harness.chosen(order))
        story = Story(
            order.task,
            tell=tell,
            used=watch.used,
            limited=self._reporter(model, lease),
            resumed_id=harness.resumed_id(order),
        )

        def started(pid: int) -> None:
            tell(events.Started(task=order.task, pid=pid, model=model, attempt=self._attempts))

        attempt = Attempt(
            errand, listener=listener(story), story=story, watch=watch, feed=feed, started=started
        )
        feed.has_room = attempt.wake
        self._scope.instead = lambda reason: attempt.stop(Stop("cancelled", reason))
        forget = self._watch_lease(lease, attempt)
        try:
            attempt.start()
            await _until_over(attempt, ended)
        finally:
            forget()
            self._scope.instead = None
        outcome = ended.result()
        self._run_seconds += outcome.run_seconds
        self._usage += story.usage
        status, reason = verdict(harness.program, story, outcome)
        return Trial(model, status, reason, outcome, story)

    def _reporter(self, model: str | None, lease: Lease) -> Callable[[float | None], None]:
        """Tells the engine's events that a provider is asked for too much."""
        harness = self._harness
        teller = harness.keeper.turnstile.teller
        key = harness.llm_key(model) or harness.key(model)

        def report(retry_after_seconds: float | None) -> None:
            self._retry_after_seconds = retry_after_seconds
            teller.rate_limited(lease.ticket, key, retry_after_seconds)

        return report

    def _watch_lease(self, lease: Lease, attempt: Attempt) -> Callable[[], None]:
        """A slot that was taken back may be another's by now: then the work must end."""
        # Not kept by it: if our loop is closed, nobody calls the answer.
        watched, lease_id = weakref.ref(attempt), lease.id

        def hear(event: engine.Event) -> None:
            running = watched()
            if running and isinstance(event, engine.Lost) and event.ticket_id == lease_id:
                running.stop(Stop("cancelled", f"its slot was lost: {event.reason}"))

        forget = self._harness.keeper.subscribe(hear)
        if lease.lost:  # before anyone listened
            attempt.stop(Stop("cancelled", "its slot was lost"))
        return forget

    # -- telling ------------------------------------------------------------------------------

    def _tell(self, event: AgentEvent) -> None:
        if self._on_event is not None:
            self._on_event(event)

    def _tell_beside(self, event: AgentEvent) -> None:
        """While the task waits: what the callback raises has to reach it there."""
        if self._has_callback_failed:
            return
        try:
            self._tell(event)
        except BaseException as error:  # noqa: BLE001 - raised again by the task
            self._has_callback_failed = True
            self._scope.interrupt(f"its callback failed: {error!r}", error)

    def _tell_of_wait(self, event: engine.Event, reason: str = "") -> None:
        if isinstance(event, engine.Queued):
            self._blocked_by = event.blocked_by.key, reason or event.blocked_by.reason
        elif not isinstance(event, engine.MovedUp):
            return
        told = events.Queued(
            task=self._order.task,
            key=self._blocked_by[0],
            position=event.position,
            reason=self._blocked_by[1],
            estimated_wait_seconds=event.estimated_wait_seconds,
        )
        self._context.copy().run(self._tell_beside, told)

    def _finish(self, status: Status, reason: str | None) -> Result:
        """The result, told when the slots are free."""
        trial, order = self._last, self._order
        story = trial.story if trial else None
        stop = trial.outcome.stop if trial else None
        result = Result(
            status=status,
            reason=reason,
            text=story.text if story else "",
            task=order.task,
            model=trial.model if trial else self._harness.model,
            session_id=story.session_id if story else None,
            usage=self._usage,
            tool_calls=tuple(story.tool_calls) if story else (),
            exit_code=trial.outcome.exit_code if trial else None,
            attempts=self._attempts,
            waited_seconds=self._waited_seconds,
            run_seconds=self._run_seconds,
            ended_by=stop.bite if stop else None,
            is_rate_limited=story.is_rate_limited if story else False,
        )
        self._tell(events.Finished(task=order.task, result=result))
        return result


async def _until_over(attempt: Attempt, ended: asyncio.Future[Outcome]) -> None:
    """Wait for the end. Whoever is cancelled meanwhile has it ended first, and then leaves."""
    try:
        await asyncio.wait({ended})
    except asyncio.CancelledError:
        attempt.stop(Stop("cancelled", "its caller was cancelled"))
        while not ended.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({ended})
        raise
    except GeneratorExit:  # the loop was closed over this task, and nothing can be awaited
        attempt.stop(Stop("cancelled", "nobody waits for it any more"))
        raise
