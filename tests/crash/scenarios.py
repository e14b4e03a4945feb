"""The operations in which victims die, and what survivors can count on afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.crash.faults import Puppet, Stage


def _opened(_: Stage, victim: Puppet) -> None:
    victim.do("open()")


def _nothing(_: Stage) -> None:
    pass


@dataclass(frozen=True)
class Scenario:
    """One operation: what comes before it, what the victim does, what must come after."""

    action: str
    prepare: Callable[[Stage, Puppet], None] = _opened
    afterwards: Callable[[Stage], None] = _nothing
    fresh_home: bool = False


def _b_is_held(stage: Stage, victim: Puppet) -> None:
    stage.survivor.do("hold('b', 'b')")
    victim.do("open()")


def _b_is_held_and_wanted(stage: Stage, victim: Puppet) -> None:
    stage.survivor.do("hold('b', 'b')")
    stage.survivor.do("line_up('w', 'b')")
    victim.do("open()")


def _drop_b(stage: Stage) -> None:
    stage.survivor.do("drop('b')")


def _waiter_is_served(stage: Stage) -> None:
    outcome = stage.survivor.do("outcome('w')")
    assert outcome == "granted", outcome


def _drop_b_and_waiter_is_served(stage: Stage) -> None:
    _drop_b(stage)
    _waiter_is_served(stage)


def _victim_holds(_: Stage, victim: Puppet) -> None:
    victim.do("open()")
    victim.do("hold('v', 'a/x')")


def _victim_holds_what_is_wanted(stage: Stage, victim: Puppet) -> None:
    victim.do("open()")
    victim.do("hold('v', 'b')")
    stage.survivor.do("line_up('w', 'b')")


def _victim_reserves_what_is_wanted(stage: Stage, victim: Puppet) -> None:
    _b_is_held(stage, victim)
    victim.do("park('a/x', 'b')")
    stage.survivor.do("line_up('w', 'a/x')")


def _waiter_then_drop_b(stage: Stage) -> None:
    _waiter_is_served(stage)
    _drop_b(stage)


def _cancel_target(stage: Stage, victim: Puppet) -> None:
    stage.survivor.do("hold('b', 'b')")
    ticket = stage.survivor.do("line_up('w', 'b')")
    victim.do("open()")
    victim.do(f"__builtins__.update(target={ticket!r})")


def _cancelled_or_served(stage: Stage) -> None:
    _drop_b(stage)
    outcome = stage.survivor.do("outcome('w')")
    assert outcome in ("granted", "Cancelled"), outcome


def _revoke_target(stage: Stage, victim: Puppet) -> None:
    lease = stage.survivor.do("hold('b', 'b')")
    stage.survivor.do("line_up('w', 'b')")
    victim.do("open()")
    victim.do(f"__builtins__.update(target={lease!r})")


def _a_is_full_and_wanted(stage: Stage, victim: Puppet) -> None:
    stage.survivor.do("hold('a1', 'a')")
    stage.survivor.do("hold('a2', 'a/x')")
    stage.survivor.do("line_up('w', 'a')")
    victim.do("open()")


def _a_drains_and_is_as_before(stage: Stage) -> None:
    stage.survivor.do("drop('a1')")
    stage.survivor.do("drop('a2')")
    _waiter_is_served(stage)
    stage.survivor.do("governor('set_limit', 'a', 2)")


def _b_is_as_before(stage: Stage) -> None:
    _drop_b_and_waiter_is_served(stage)
    stage.survivor.do("governor('set_limit', 'b', 1)")


def _b_is_open_again(stage: Stage) -> None:
    _drop_b(stage)
    stage.survivor.do("governor('resume', 'b')")
    _waiter_is_served(stage)


def _b_is_closed_and_wanted(stage: Stage, victim: Puppet) -> None:
    stage.survivor.do("governor('pause', 'b')")
    stage.survivor.do("line_up('w', 'b')")
    victim.do("open()")


def _resumed(stage: Stage) -> None:
    stage.survivor.do("governor('resume', 'b')")
    _waiter_is_served(stage)


def _a_corpse_holds_b(stage: Stage, victim: Puppet) -> None:
    victim.do("open()")
    stage.corpse("hold('c', 'b')")


def _b_is_lent(stage: Stage, victim: Puppet) -> None:
    lender = stage.survivor.do("hold('b', 'b')")
    victim.do("open()")
    victim.do(f"__builtins__.update(lender={lender!r})")


def _the_loan_is_wanted(stage: Stage, victim: Puppet) -> None:
    _b_is_lent(stage, victim)
    victim.do("hold('v', 'b', parent=lender)")
    lender = victim.do("lender")
    stage.survivor.do(f"line_up('w', 'b', parent={lender!r})")


def _unopened(_stage: Stage, _victim: Puppet) -> None:
    pass


def _victim_has_everything(stage: Stage, victim: Puppet) -> None:
    _b_is_held(stage, victim)
    victim.do("hold('v', 'a/x')")
    victim.do("line_up('u', 'b')")
    stage.survivor.do("line_up('w', 'a/x')")


def _all_hold_and_the_file_goes(how: str) -> Callable[[Stage, Puppet], None]:
    def prepare(stage: Stage, victim: Puppet) -> None:
        _b_is_held_and_wanted(stage, victim)
        victim.do("hold('v', 'a/x')")
        stage.survivor.do(f"spoil({how!r})")

    return prepare


SCENARIOS = {
    "request granted straight": Scenario("hold('v', 'a/x')"),
    "request that waits and leaves": Scenario("ask('b', timeout=0.02)", _b_is_held, _drop_b),
    "request refused": Scenario("ask('b', wait=False)", _b_is_held, _drop_b),
    "request with several keys": Scenario("ask('a/x', 'b', timeout=0.02)", _b_is_held, _drop_b),
    "release, nobody waits": Scenario("drop('v')", _victim_holds),
    "release to another": Scenario("drop('v')", _victim_holds_what_is_wanted, _waiter_is_served),
    "withdraw": Scenario("unpark()", _victim_reserves_what_is_wanted, _waiter_then_drop_b),
    "cancel another's": Scenario(
        "governor('cancel', target)", _cancel_target, _cancelled_or_served
    ),
    "revoke": Scenario("governor('revoke', target)", _revoke_target, _drop_b_and_waiter_is_served),
    "raise a limit": Scenario(
        "governor('set_limit', 'b', 2)", _b_is_held_and_wanted, _b_is_as_before
    ),
    "lower a limit": Scenario(
        "governor('set_limit', 'a', 1)", _a_is_full_and_wanted, _a_drains_and_is_as_before
    ),
    "pause": Scenario("governor('pause', 'b')", _b_is_held_and_wanted, _b_is_open_again),
    "resume": Scenario("governor('resume', 'b')", _b_is_closed_and_wanted, _resumed),
    "reclaim": Scenario("hold('v', 'b')", _a_corpse_holds_b),
    "take a loan": Scenario("hold('v', 'b', parent=lender)", _b_is_lent, _drop_b),
    "return a loan": Scenario("drop('v')", _the_loan_is_wanted, _waiter_then_drop_b),
    "open a fresh home": Scenario("open()", _unopened, fresh_home=True),
    "open beside others": Scenario("open()", _unopened),
    "close": Scenario("governor('close')", _victim_has_everything, _waiter_then_drop_b),
    "look": Scenario("governor('snapshot')", _a_corpse_holds_b),
    "move to a new file": Scenario(
        "ask('b', wait=False)", _all_hold_and_the_file_goes("delete"), _drop_b_and_waiter_is_served
    ),
    "set a damaged file aside": Scenario(
        "ask('b', wait=False)", _all_hold_and_the_file_goes("garbage"), _drop_b_and_waiter_is_served
    ),
}
