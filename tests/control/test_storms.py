"""Everything at once: limits, faults, crashes, interrupts, curves that break off. What must hold holds."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.control.test_checkpoints import assert_checkpoints_are_there_when_they_are_needed
from tests.control.test_recovery import ALGORITHMS, TIMED, faults, timed_limits
from tests.worlds import Session, World, assert_sound, timed_world, world

from elastune.allocate import FirstComeFirstServed, Fluid
from elastune.cluster.workload import Curve, Synthetic
from elastune.messages import Config, Metrics
from elastune.spec import Width

WIDTHS: list[Width] = [1, 1, Fraction(1, 2), Fraction(1, 3)]
SCALINGS = [None, {1 / 3: 0.5, 0.5: 0.7, 1: 1, 4: 3}]
FLUID = [Fluid(), Fluid(as_published=True), Fluid(scaling={1 / 3: 0.6, 1: 1, 2: 1.9}), Fluid(2, 1)]


class Unsteady(Synthetic):
    """Some trials meet a value that is not a number, some return early."""

    def curve(self, config: Config) -> Curve:
        steady, kind = super().curve(config), int(config["lr"] * 1e7)

        def metrics(iteration: int) -> Metrics | None:
            if (kind + iteration) % 23 == 0:
                return {"loss": math.nan}
            return None if iteration == 7 and kind % 5 == 0 else steady(iteration)

        return metrics


@st.composite
def storms(draw: st.DrawFn) -> World:
    seed, devices = draw(st.integers(0, 999)), draw(st.integers(1, 3))
    weather: dict[str, Any] = {
        "devices": devices,
        "seed": seed,
        "grace_s": draw(st.sampled_from([0.2, 5.0])),
        "max_retries": draw(st.sampled_from([0, 1, 20])),
        "boot_s": draw(st.sampled_from([0.0, 2.5])),
        "lifetime_s": draw(st.sampled_from([None, 20.0])),
        "notice_s": 2.0,
        "stragglers": 0.5,
        "checkpoint_every_s": draw(st.sampled_from([1.0, 3.0, 60.0])),
        "with_checkpoints": draw(st.booleans()),
        "faults": draw(faults),
        "workload": draw(st.sampled_from([None, Unsteady("loss", "min", seed=seed)])),
    }
    name = draw(st.sampled_from(sorted(ALGORITHMS) + sorted(TIMED)))
    if name in TIMED:
        return timed_world(TIMED[name], **timed_limits(draw, devices), machines=9, price=1.0, **weather)
    budget_usd = draw(st.sampled_from([None, 30.0, 100.0]))
    machines = draw(st.integers(1, 3))
    return world(
        ALGORITHMS[name],
        allocator=draw(st.sampled_from([FirstComeFirstServed(machines, width) for width in WIDTHS] + FLUID)),
        machines=machines,
        scaling=draw(st.sampled_from(SCALINGS)),
        resize_s=0.1,
        deadline_s=draw(st.sampled_from([None, 12.5, 40.0])),
        budget_usd=budget_usd,
        price=0.0 if budget_usd is None else 3600.0,
        **weather,
    )


blows = st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["crash", "interrupt"])), max_size=4)


def weathered(place: World, hits: list[tuple[int, str]]) -> Session:
    session = place.start()
    for turns, hit in hits:
        session.turns(turns)
        if hit == "interrupt" and not session.controller.done:
            session.loop.interrupt()
            session.loop.run()
        if session.controller.done and session.view.status != "interrupted":
            break
        session = place.resume(session.journal)
    return session.run()


@settings(max_examples=150, deadline=None, derandomize=True)
@given(storms(), blows)
def test_any_run_ends_in_order_and_the_journal_agrees_with_the_controller(
    place: World, hits: list[tuple[int, str]]
) -> None:
    session = weathered(place, hits)
    assert_sound(session)
    assert_checkpoints_are_there_when_they_are_needed(session)
    view, trials = session.view, session.controller.trials
    assert {trial.id: trial.status for trial in view.trials.values()} == {t.id: t.status for t in trials.values()}
    assert not [trial.id for trial in trials.values() if trial.slots]
    assert math.isclose(view.cost_usd(), session.controller.fleet.spending.spent_usd(view.at_s), abs_tol=1e-6)
    losses = [trial.best_loss for trial in trials.values() if trial.best_loss is not None]
    if view.best is None or not view.best.verdict:  # else its algorithm has said which is the best
        assert (view.best.best_value if view.best else None) == min(losses, default=None)
