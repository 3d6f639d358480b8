"""Markets in every mood, and drivers that die: the bill is right, and every journal can be replayed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.control.test_checkpoints import assert_checkpoints_are_there_when_they_are_needed
from tests.market.test_cloud import priced
from tests.worlds import Session, World, assert_sound, world

from elastune import messages as m
from elastune.algorithm import ASHA, FIFO, PBT, Algorithm, Hyperband, SpotTune, SuccessiveHalving
from elastune.allocate.base import Allocator
from elastune.allocate.cheapest_step import CheapestStep
from elastune.allocate.in_time import InTime
from elastune.cluster.workload import Synthetic
from elastune.control.run import recover
from elastune.market.cloud import HOUR_S, Capacity, Kind, PlayedCloud
from elastune.market.prices import Prices, PriceSeries

STAGED: list[Algorithm] = [FIFO(5, R=6), SuccessiveHalving(9, 1, 10, 3), SpotTune(6, 8, 0.6, 2), Hyperband(9, eta=3)]
OTHERS: list[Algorithm] = [ASHA(10, 1, 9, 3), PBT(5, 9, 2)]


class TheLowerTheRiskier:
    def probabilities(self, market: str, max_prices: Sequence[float], at_unix_s: float) -> list[float]:
        return [min(1.0, 0.3 / (bid + 0.1)) for bid in max_prices]


@st.composite
def clouds(draw: st.DrawFn) -> PlayedCloud:
    kinds, series, capacity = {}, {}, {}
    usd = st.sampled_from([0.1, 0.2, 0.25, 0.5, 1.5, 5.0])
    for market in ("a/z", "b/z", "c/z")[: draw(st.integers(1, 3))]:
        kinds[market] = Kind(draw(st.sampled_from([1.0, 2.0])), draw(st.sampled_from([1.0, 1.0, 2.0])))
        if draw(st.integers(0, 4)) == 0:
            counts = draw(st.lists(st.integers(0, 4), min_size=1, max_size=30))
            capacity[market] = Capacity(draw(st.sampled_from([3.0, 20.0])), np.array(counts, dtype=float), 0.3)
        else:
            gaps = draw(st.lists(st.floats(0.01, 40.0), max_size=30))
            prices = draw(st.lists(usd, min_size=len(gaps) + 1, max_size=len(gaps) + 1))
            series[market] = PriceSeries(market, np.append(-1e5, np.cumsum(gaps)), np.array(prices))
    return PlayedCloud(
        kinds,
        Prices(series) if series else None,
        capacity,
        pace=draw(st.sampled_from([1.0, 1.0, 60.0])),
        notice_s=draw(st.sampled_from([0.0, 2.0, 120.0])),
        refund_s=draw(st.sampled_from([0.0, 20.0, HOUR_S])),
        minimum_s=draw(st.sampled_from([0.0, 60.0])),
        boot_s=draw(st.sampled_from([0.0, 2.5, 60.0])),
    )


@st.composite
def storms(draw: st.DrawFn) -> World:
    cloud, seed, in_time = draw(clouds()), draw(st.integers(0, 999)), draw(st.booleans())
    algorithm = draw(st.sampled_from(STAGED if in_time else STAGED + OTHERS))
    allocator: Allocator
    deadline_s: float | None
    if in_time:
        deadline_s = promised_s = draw(st.sampled_from([30.0, 100.0, 400.0]))
        allocator = InTime(
            cloud, algorithm.stages() or (), promised_s, draw(st.sampled_from([0.0, 1.0])), unsaved_s=3.0
        )
    else:
        deadline_s = draw(st.sampled_from([None, 60.0]))
        said, redeploy_s = draw(st.sampled_from([None, TheLowerTheRiskier()])), draw(st.sampled_from([10.0, HOUR_S]))
        allocator = CheapestStep(cloud, said, draw(st.booleans()), seed, redeploy_s, bids=3)
    return world(
        algorithm,
        allocator=allocator,
        cloud=cloud,
        machines=draw(st.integers(1, 4)),
        seed=seed,
        deadline_s=deadline_s,
        budget_usd=draw(st.sampled_from([None, None, 0.05, 2.0])),
        start_s=draw(st.sampled_from([0.0, 1.0])),
        stragglers=draw(st.sampled_from([0.0, 0.4])),
        checkpoint_every_s=draw(st.sampled_from([1.0, 3.0, 60.0])),
        workload=Synthetic("loss", "min", step_s=draw(st.sampled_from([1.0, 7.0])), seed=seed),
        grace_s=draw(st.sampled_from([0.2, 5.0])),
    )


def weathered(place: World, hits: list[tuple[int, str]]) -> Session:
    """A driver that dies is followed by another, which finds its machines or does not."""
    session = place.start()
    for turns, hit in hits:
        session.turns(turns)
        if hit == "interrupt" and not session.controller.done:
            session.loop.interrupt()
            session.loop.run()
        if session.controller.done and session.view.status != "interrupted":
            break
        session = place.adopt(session) if hit == "adopt" else place.resume(session.journal, after_s=17.0)
    return session.run()


def assert_replays(place: World, session: Session) -> None:
    recover(session.journal, place.experiment.controller(), None, lambda record: None)


blows = st.lists(st.tuples(st.integers(0, 40), st.sampled_from(["crash", "adopt", "interrupt"])), max_size=3)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(storms(), blows)
def test_any_run_on_spot_machines_ends_in_order_and_is_billed_rightly(
    place: World, hits: list[tuple[int, str]]
) -> None:
    session = weathered(place, hits)
    assert_sound(session)
    assert_checkpoints_are_there_when_they_are_needed(session)
    view = session.view
    assert math.isclose(view.cost_usd(), session.controller.fleet.spending.spent_usd(view.at_s), abs_tol=1e-6)
    assert_replays(place, session)


def test_a_trial_that_moves_is_given_one_machine_also_while_others_move() -> None:
    cloud = priced([(-1e5, 0.2)], refund_s=HOUR_S, boot_s=60.0)
    uneven = Synthetic("loss", "min", step_s=700.0)
    place = world(
        FIFO(4, R=30), allocator=CheapestStep(cloud), cloud=cloud, machines=4, workload=uneven, stragglers=0.4
    )
    session = place.run()
    for record in session.records:
        chosen = [decision.trial for decision in record.decisions if isinstance(decision, m.Chosen)]
        assert len(chosen) == len(set(chosen)), f"at {record.at_s} s machines were chosen for {chosen}"
    assert len([command for command in session.commands if isinstance(command, m.AddNode)]) > 8
    assert_replays(place, session)


def test_a_request_that_is_not_served_is_given_up_for_another() -> None:
    """For two trials there is one spot machine, and later none."""
    cloud = PlayedCloud({"a": Kind(1.0)}, capacity={"a": Capacity(400.0, np.array([1.0, 1.0, 0.0]), 0.1)})
    steps = Synthetic("loss", "min", step_s=100.0)
    session = world(FIFO(2, R=9), allocator=CheapestStep(cloud), cloud=cloud, machines=2, workload=steps).run()
    offers = [c.offer for c in session.commands if isinstance(c, m.AddNode) and isinstance(c.offer, m.Offer)]
    assert [offer.market for offer in offers[:2]] == ["spot", "spot"] and offers[-1].market == "on-demand"
    assert session.view.status == "succeeded" and session.view.at_s == 1800.0
