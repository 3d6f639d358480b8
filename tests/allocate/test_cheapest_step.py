"""Each trial has a machine of its own: that on which its next step should cost least."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from tests.worlds import world

from elastune import messages as m
from elastune.algorithm import ASHA, FIFO, Algorithm, SuccessiveHalving
from elastune.allocate.base import MachineView, Steps, View
from elastune.allocate.cheapest_step import BIDS, CheapestStep
from elastune.cluster.simulated import Fault
from elastune.cluster.workload import Synthetic
from elastune.control.run import recover
from elastune.errors import SpecError
from elastune.market.cloud import HOUR_S, Capacity, Kind, PlayedCloud
from elastune.market.prices import Prices, PriceSeries
from elastune.messages import Chosen, Offer
from elastune.spec import Limits, Terms


def risen(usd: float, refund: bool = False) -> PlayedCloud:
    """A spot machine for $0.1, of which that has been the price until a minute ago."""
    series = PriceSeries("a", np.array([0.0, 8940.0]), np.array([0.1, usd]))
    return PlayedCloud({"a": Kind(1.0, 1.0)}, Prices({"a": series}), begin_unix_s=9e3, refund_s=HOUR_S * refund)


@pytest.mark.parametrize("refund", [False, True])
@pytest.mark.parametrize(("usd", "market"), [(0.9, "spot"), (5.0, "on-demand")])
def test_a_price_that_has_just_jumped_above_the_one_on_demand_is_not_paid(
    usd: float, market: str, refund: bool
) -> None:
    place = World(CheapestStep(risen(usd, refund), Said({"a": 0.0})), ["t"])
    place.ask(0.0)
    assert [chosen.offer.market for chosen in place.chosen] == [market]


def cloud(prices: dict[str, float], speeds: dict[str, float] | None = None, refund: bool = False) -> PlayedCloud:
    kinds = {market: Kind(10 * price, (speeds or {}).get(market, 1.0)) for market, price in prices.items()}
    series = {market: PriceSeries(market, np.array([0.0]), np.array([price])) for market, price in prices.items()}
    return PlayedCloud(kinds, Prices(series), begin_unix_s=9e3, refund_s=HOUR_S * refund, boot_s=60.0)


@dataclass
class Said:
    """How likely the machines of a market are taken away, the more so the lower the bid."""

    by_market: dict[str, float]
    price: float = 1.0

    def probabilities(self, market: str, max_prices: Sequence[float], at_unix_s: float) -> list[float]:
        return [self.by_market[market] * self.price / bid for bid in max_prices]


@dataclass
class World:
    """Does what an allocator wants at once."""

    allocator: CheapestStep
    trials: list[str]
    machines: int = 16
    held: dict[int, MachineView] = field(default_factory=dict)
    on: dict[str, int] = field(default_factory=dict)
    chosen: list[Chosen] = field(default_factory=list)
    wake_s: float | None = None

    def __post_init__(self) -> None:
        terms = Terms(Limits(), self.machines, 1, 0.0)
        self.allocator.setup(terms)

    def ask(self, at_s: float, recorded: dict[str, Chosen] | None = None) -> None:
        view = View(
            0,
            dict.fromkeys(self.on, 1),
            [trial for trial in self.trials if trial not in self.on],
            machines=lambda pool: [self.held[pool]] if pool in self.held else [],
            chosen=(recorded or {}).get,
            left=lambda trial: 100,
        )
        target = self.allocator.allocate(view, at_s)
        self.chosen += target.chosen
        self.wake_s = target.wake_s
        self.on = {trial: pool for trial, pool in self.on.items() if trial in target.widths}
        self.held = {pool: machine for pool, machine in self.held.items() if pool in target.by_pool}
        for trial in target.widths:
            pool = target.pools[trial]
            self.held.setdefault(pool, MachineView(at_s, (trial,), 1, target.offers[pool]))
            self.on[trial] = pool

    def finish(self, trial: str) -> None:
        self.trials.remove(trial)
        pool = self.on.pop(trial)
        self.held[pool] = replace(self.held[pool], trials=())

    def lose(self, trial: str) -> None:
        del self.held[self.on.pop(trial)]

    def types(self) -> dict[str, str]:
        offers = {trial: self.held[pool].offer for trial, pool in self.on.items()}
        return {trial: offer.type for trial, offer in offers.items() if offer is not None}


def test_a_trial_goes_where_a_step_costs_least_and_not_where_an_hour_does() -> None:
    world = World(CheapestStep(cloud({"small": 0.1, "large": 0.3}, {"large": 4.0})), ["t"])
    world.ask(0.0)
    assert world.types() == {"t": "large"}
    assert world.chosen[0].step_usd == pytest.approx(0.3 / 4)


def test_with_a_refund_machines_that_are_taken_away_are_the_cheapest() -> None:
    prices, said = {"calm": 1.0, "wild": 1.2}, Said({"calm": 0.0, "wild": 0.9}, 1.2)
    for refund, best in ((True, "wild"), (False, "calm")):
        world = World(CheapestStep(cloud(prices, refund=refund), said, on_demand=False), ["t"])
        world.ask(0.0)
        assert world.types() == {"t": best}


def test_a_machine_that_is_likely_to_go_soon_is_not_worth_much_more_for_its_refund() -> None:
    prices, said = {"calm": 1.0, "wild": 1.5}, Said({"calm": 0.0, "wild": 0.5}, 1.5)
    world = World(CheapestStep(cloud(prices, refund=True), said, on_demand=False), ["t"])
    world.ask(0.0)
    assert world.types() == {"t": "calm"}


def test_of_several_bids_the_lowest_is_best_with_a_refund_and_the_highest_without() -> None:
    low, high = BIDS
    bids = {}
    for refund in (True, False):
        allocator = CheapestStep(cloud({"a": 1.0}, refund=refund), Said({"a": 0.5}), on_demand=False, bids=50)
        world = World(allocator, ["t"])
        world.ask(0.0)
        bids[refund] = world.chosen[0].offer.max_usd_per_hour
    assert 1 + low <= (bids[True] or 0) < 1.01 < 1.1 < (bids[False] or 0) <= 1 + high


def test_machines_that_stay_are_looked_at_if_asked_for_or_if_there_is_nothing_else() -> None:
    kinds = {"none": Kind(1.0), "some": Kind(5.0)}
    for counts, on_demand, offer in (
        ((0.0, 1.0), False, Offer("some", "spot")),
        ((0.0, 1.0), True, Offer("none")),
        ((0.0, 0.0), False, Offer("none")),
    ):
        capacity = {market: Capacity(60.0, np.array([count]), 4.0) for market, count in zip(kinds, counts, strict=True)}
        world = World(CheapestStep(PlayedCloud(kinds, capacity=capacity), on_demand=on_demand), ["t"])
        world.ask(0.0)
        assert (world.chosen[0].offer.type, world.chosen[0].offer.market) == (offer.type, offer.market)


def test_with_a_refund_a_trial_moves_after_an_hour() -> None:
    world = World(CheapestStep(cloud({"a": 0.1}, refund=True)), ["t"])
    world.ask(0.0)
    world.ask(1.0)
    assert world.wake_s == pytest.approx(HOUR_S)
    first = world.on["t"]
    world.ask(HOUR_S - 1)
    assert world.on["t"] == first
    world.ask(HOUR_S)
    world.ask(HOUR_S + 1)
    assert world.on["t"] != first and len(world.held) == 1


def test_without_a_refund_a_trial_moves_only_where_that_saves() -> None:
    world = World(CheapestStep(cloud({"a": 0.1, "b": 0.2}), on_demand=False), ["t"])
    world.ask(0.0)
    world.ask(HOUR_S)
    assert world.types() == {"t": "a"}
    world.allocator.stepped(Steps("t", 1, 1, 500.0, first=True))
    world.allocator._times.add("t", "b", 10.0)
    world.ask(2 * HOUR_S)
    world.ask(2 * HOUR_S + 1)
    assert world.types() == {"t": "b"}


@pytest.mark.parametrize(("step_s", "best"), [(99.9, "a"), (90.0, "b")])
def test_without_a_refund_a_trial_stays_where_moving_saves_less_than_the_boot_costs(step_s: float, best: str) -> None:
    world = World(CheapestStep(cloud({"a": 0.1, "b": 0.1}), on_demand=False), ["t"])
    world.ask(0.0)
    assert world.types() == {"t": "a"}
    world.allocator._times.add("t", "a", 100.0)
    world.allocator._times.add("t", "b", step_s)
    world.ask(HOUR_S)
    world.ask(HOUR_S + 1)
    assert world.types() == {"t": best}


def spiky(refund: bool) -> Any:
    """Half an hour is a step, and one market is cheap for a quarter of an hour at a time."""
    times = [0.0] + [at for k in range(400) for at in (600.0 + 900 * k, 660.0 + 900 * k)]
    usd = [0.2] + [5.0, 0.2] * 400
    series = {
        "brief": PriceSeries("brief", np.array(times), np.array(usd)),
        "calm": PriceSeries("calm", np.array([0.0]), np.array([0.6])),
    }
    kinds = {"brief": Kind(1.0), "calm": Kind(1.0)}
    market = PlayedCloud(kinds, Prices(series), begin_unix_s=9e3, refund_s=HOUR_S * refund, boot_s=60.0)
    allocator = CheapestStep(market, Said({"brief": 0.95, "calm": 0.0}, 0.2), on_demand=False)
    return world(FIFO(1, 3), cloud=market, allocator=allocator, workload=Synthetic("loss", "min", step_s=1800.0))


@pytest.mark.parametrize("refund", [True, False])
def test_a_trial_that_gets_nowhere_goes_where_machines_last(refund: bool) -> None:
    session = spiky(refund).start().turns(2000)
    assert session.controller.done and session.view.status == "succeeded"
    offers = [command.offer for command in session.commands if isinstance(command, m.AddNode)]
    kinds = [offer.type for offer in offers if isinstance(offer, Offer)]
    assert kinds[:3] == ["brief"] * 3 and kinds[3] == "calm"


def test_of_machines_that_stay_a_trial_that_gets_nowhere_has_the_one_where_a_step_costs_least() -> None:
    prices = {"dear": 1.0, "fast": 2.0, "slow": 0.5}
    world = World(CheapestStep(cloud(prices, {"fast": 8.0}), Said({"dear": 0.5, "fast": 0.5, "slow": 0.5})), ["t"])
    for _ in range(4):
        world.ask(0.0)
        offer = world.chosen[-1].offer
        world.lose("t")
    assert (offer.type, offer.market) == ("fast", "on-demand")


def test_without_a_refund_steps_that_are_longer_than_the_notice_cost_more_where_machines_go() -> None:
    prices, said = {"calm": 1.0, "wild": 0.9}, Said({"calm": 0.0, "wild": 0.5}, 0.9)
    for step_s, best in ((100.0, "wild"), (3600.0, "calm")):
        allocator = CheapestStep(cloud(prices), said, on_demand=False)
        world = World(allocator, ["u"])
        for kind in prices:
            allocator._times.add("t", kind, step_s)
        world.ask(0.0)
        assert world.types() == {"u": best}


def test_a_trial_whose_machine_was_taken_away_gets_another() -> None:
    world = World(CheapestStep(cloud({"a": 0.1})), ["t", "u"])
    world.ask(0.0)
    lost = world.on["t"]
    world.lose("t")
    world.ask(600.0)
    assert set(world.on) == {"t", "u"} and world.on["t"] != lost


def test_there_are_never_more_machines_than_allowed() -> None:
    world = World(CheapestStep(cloud({"a": 0.1})), ["t", "u", "v"], machines=2)
    world.ask(0.0)
    assert set(world.on) == {"t", "u"}
    world.trials.remove("t")
    del world.on["t"]
    world.ask(60.0)
    assert set(world.on) == {"u", "v"} and len(world.held) == 2


@pytest.mark.parametrize(("step_s", "best"), [(99.9, "a"), (90.0, "b")])
def test_a_free_machine_is_taken_unless_a_new_one_is_cheaper_even_with_its_boot(step_s: float, best: str) -> None:
    world = World(CheapestStep(cloud({"a": 0.1, "b": 0.1}), on_demand=False), ["t"])
    world.ask(0.0)
    assert world.types() == {"t": "a"}
    first = world.on["t"]
    world.allocator._times.add("t", "a", 100.0)
    world.allocator._times.add("t", "b", step_s)
    world.finish("t")
    world.trials += ["u", "v"]
    world.ask(60.0)
    assert world.types()["u"] == best and (world.on["u"] == first) == (best == "a")
    assert world.on["v"] != first, "it is one trial's"


def test_a_free_machine_is_given_back_where_nobody_waits() -> None:
    world = World(CheapestStep(cloud({"a": 0.1})), ["t"])
    world.ask(0.0)
    world.finish("t")
    world.ask(60.0)
    assert world.held == {}


def test_a_copy_goes_on_as_the_original_would() -> None:
    said = Said({"a": 0.5, "b": 0.4})
    world = World(CheapestStep(cloud({"a": 1.0, "b": 1.1}, refund=True), said), ["t"])
    world.ask(0.0)
    copy = pickle.loads(pickle.dumps(world.allocator))
    more = [f"more-{number}" for number in range(5)]
    found = [each.allocate(View(0, {}, more), 60.0).chosen for each in (world.allocator, copy)]
    assert found[0] == found[1] and len(found[0]) == 5


def test_what_was_chosen_before_stands_and_what_comes_after_is_as_it_was() -> None:
    said = Said({"a": 0.5, "b": 0.4})
    worlds = [World(CheapestStep(cloud({"a": 1.0, "b": 1.1}), said), ["t"]) for _ in range(2)]
    recorded = Chosen("t", Offer("b", "spot", 7.0), 0.1, 0.2)
    worlds[0].ask(0.0)
    worlds[1].ask(0.0, {"t": recorded})
    assert worlds[1].chosen == [recorded] and worlds[1].types() == {"t": "b"}
    for each in worlds:
        each.trials.append("u")
        each.ask(60.0)
    assert worlds[0].chosen[1:] == worlds[1].chosen[1:]


@pytest.mark.parametrize("bids", [0, 1.5, True])
def test_at_least_one_bid_is_tried(bids: int) -> None:
    with pytest.raises(SpecError, match="bids="):
        CheapestStep(cloud({"a": 0.1}), bids=bids)


def spot_world(algorithm: Algorithm, **more: Any) -> Any:
    market = cloud({"a": 1.0})
    return world(algorithm, cloud=market, allocator=CheapestStep(market), machines=4, **more)


class AlwaysNew(CheapestStep):
    def _forget(self, view: View, at_s: float) -> list[Any]:
        super()._forget(view, at_s)
        return []


def halving(kind: type[CheapestStep], refund: bool = False, risk: float = 0.2) -> Any:
    """Two markets, of which the cheaper one has a risk."""
    market, said = cloud({"a": 0.1, "b": 0.12}, refund=refund), Said({"a": risk, "b": 0.1}, 0.1)
    steps = Synthetic("loss", "min", step_s=60.0)
    algorithm = SuccessiveHalving(27, 1, 27, 3)
    return world(algorithm, cloud=market, allocator=kind(market, said), machines=4, workload=steps)


def test_trials_that_wait_take_over_the_machines_of_those_that_are_done_which_is_cheaper_and_sooner() -> None:
    reused, new = halving(CheapestStep).run(), halving(AlwaysNew).run()
    assert len(reused.view.machines) < 10 < 30 < len(new.view.machines)
    assert reused.view.at_s < 0.9 * new.view.at_s
    assert reused.view.cost_usd() < 0.9 * new.view.cost_usd()
    trained = [{trial.id: trial.iteration for trial in each.view.trials.values()} for each in (reused, new)]
    assert trained[0] == trained[1]


def test_with_a_refund_every_trial_has_a_new_machine() -> None:
    usual, new = halving(CheapestStep, refund=True).run(), halving(AlwaysNew, refund=True).run()
    assert usual.records == new.records and len(usual.view.machines) > 30


def test_machines_are_taken_over_in_the_same_way_when_the_driver_is_pickled_or_the_journal_replayed() -> None:
    place = halving(CheapestStep)
    straight, pickled = place.run(), place.start()
    while not pickled.controller.done:
        pickled.controller = pickled.loop._controller = pickle.loads(pickle.dumps(pickled.controller))
        pickled.turns(1)
    assert pickled.records == straight.records
    for risk in (0.2, 100.0):  # also by a model that thinks otherwise now
        recover(straight.journal, halving(CheapestStep, risk=risk).experiment.controller(), None, lambda record: None)


def test_a_trial_that_fails_goes_on_on_its_machine_when_it_is_its_time() -> None:
    session = spot_world(FIFO(4, 20), faults=[Fault(65.0, "kill", "t-00000")]).run()
    assert session.view.status == "succeeded"
    assert all(trial.iteration == 20 for trial in session.view.trials.values())


def test_of_an_algorithm_without_an_end_no_more_are_begun_than_there_are_machines() -> None:
    session = spot_world(ASHA(n=None, r=1, R=9), budget_usd=0.5).run()
    first = next(record for record in session.records if record.commands)
    assert sum(isinstance(each, m.Suggested) for each in first.decisions) == 4
    assert session.view.status != "failed" and len(session.view.trials) > 4


def test_a_searcher_that_learns_is_asked_when_there_is_something_to_learn_from() -> None:
    session = spot_world(ASHA(n=30, r=1, R=9), searcher="tpe").run()
    before = 0
    for record in session.records:
        if any(isinstance(event, m.TrialReported) for event in record.events):
            break
        before += sum(isinstance(each, m.Suggested) for each in record.decisions)
    assert before <= 8 and len(session.view.trials) == 30
