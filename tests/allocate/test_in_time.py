"""Spot machines with a deadline: the run ends in time whatever the market does, and costs what spot machines cost where
they stay.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.worlds import Session, World, assert_sound, world

from elastune import messages as m
from elastune.algorithm import FIFO, Algorithm, Hyperband, SpotTune, SuccessiveHalving
from elastune.allocate.in_time import InTime
from elastune.cluster.workload import Curve, Synthetic, hash_unit
from elastune.market.cloud import Capacity, Kind, PlayedCloud
from elastune.market.late import LastMoment, LatePolicy, UniformProgress
from elastune.market.never_late import NeverLate
from elastune.market.prices import Prices, PriceSeries
from elastune.messages import Config, Offer

POLICIES: list[type[LatePolicy]] = [LastMoment, UniformProgress, NeverLate]
ALGORITHMS: dict[str, Callable[[], Algorithm]] = {
    "FIFO": lambda: FIFO(7, 20),
    "FIFO, two at once": lambda: FIFO(5, 20, max_concurrent=2),
    "SuccessiveHalving": lambda: SuccessiveHalving(n=9, r=4, R=36, eta=3),
    "Hyperband": lambda: Hyperband(R=27, r=3, eta=3),
    "SuccessiveHalving, from one step": lambda: SuccessiveHalving(n=27, r=1, R=27, eta=3),
    "SpotTune": lambda: SpotTune(n=6, R=30, theta=0.6, mcnt=2),
}
ALWAYS, NEVER = [9.0], [0.0]
GAP_S, START_S, SAVED_S = 120.0, 5.0, 60.0


class Uneven(Synthetic):
    """Steps take up to 4% longer than the shortest; some curves come to rest early."""

    def __init__(self, step_s: float, uneven: float = 0.04) -> None:
        super().__init__("loss", "min", step_s=step_s)
        self._uneven = uneven

    def curve(self, config: Config) -> Curve:
        usual = super().curve(config)
        at = 4 + int(20 * hash_unit(config, 0))
        return lambda iteration: usual(min(iteration, at)) if hash_unit(config, 1) < 0.5 else usual(iteration)

    def step_s(self, config: Config, iteration: int) -> float:
        return super().step_s(config, iteration) * (1 + self._uneven * hash_unit(config, iteration))


class Brief(PlayedCloud):
    """Every spot machine is taken away a little after it was asked for; there is always another."""

    life_s = 0.0

    def taken_s(self, offer: Offer, at_s: float) -> float:
        return at_s + self.life_s if offer.market == "spot" else math.inf


def cloud(
    counts: Sequence[float], boot_s: float = 60.0, notice_s: float = 0.0, life_s: float | None = None
) -> PlayedCloud:
    trace = Capacity(GAP_S, np.array(counts, dtype=float), 0.3)
    if life_s is None:
        return PlayedCloud({"a": Kind(1.0)}, capacity={"a": trace}, boot_s=boot_s, notice_s=notice_s)
    kind = type("Lives", (Brief,), {"life_s": life_s})
    made: PlayedCloud = kind({"a": Kind(1.0)}, capacity={"a": trace}, boot_s=boot_s, notice_s=notice_s)
    return made


def priced(rng: random.Random, usual_usd: float, boot_s: float = 60.0, notice_s: float = 0.0) -> PlayedCloud:
    """The price changes all the time, and may be above the dollar that a machine costs on demand, also at first."""
    times, usd = [0.0], [usual_usd]
    for _ in range(600):
        times.append(times[-1] + rng.expovariate(1 / 600.0))
        usd.append(usual_usd * rng.lognormvariate(0.0, 0.5))
    series = PriceSeries("a", np.array(times), np.array(usd))
    kinds = {"a": Kind(1.0)}
    return PlayedCloud(kinds, Prices({"a": series}), begin_unix_s=4000.0, boot_s=boot_s, notice_s=notice_s)


def enough_s(market: PlayedCloud, algorithm: Algorithm, machines: int, step_s: float) -> float:
    """The shortest deadline that is promised: the run on demand with steps that take 10% longer; a spot machine tried
    in vain and a change to on-demand machines, with all that may be lost.
    """
    allocator = in_time(market, algorithm, 1.0, machines)
    at_once = min(machines, algorithm.max_concurrent or machines)
    run_s = allocator._play([], [], step_s, at_once)
    return 1.1 * run_s + 2 * allocator.changeover_s + 3 * step_s + SAVED_S + market.notice_s


def in_time(
    market: PlayedCloud,
    algorithm: Algorithm,
    deadline_s: float,
    machines: int,
    policy: type[LatePolicy] = NeverLate,
) -> InTime:
    stages = algorithm.stages()
    assert stages is not None
    return InTime(market, stages, deadline_s, START_S, policy, SAVED_S)


def run_of(
    market: PlayedCloud,
    algorithm: str,
    machines: int,
    step_s: float,
    times: float = 1.0,
    policy: type[LatePolicy] = NeverLate,
    uneven: float = 0.04,
    start_s: float = START_S,
    midway: bool = False,
) -> World:
    """With a deadline of so many times what is promised, for starts that take START_S or less."""
    made = ALGORITHMS[algorithm]()
    deadline_s = times * enough_s(market, made, machines, step_s * (1 + uneven))
    return world(
        made,
        cloud=market,
        allocator=in_time(market, made, deadline_s, machines, policy),
        workload=Uneven(step_s, uneven),
        deadline_s=deadline_s,
        machines=machines,
        start_s=start_s,
        midway=midway,
        checkpoint_every_s=SAVED_S,
    )


def assert_in_time(session: Session, machines: int, step_s: float) -> None:
    view = session.view
    assert_sound(session)
    assert view.status == "succeeded", view.reason
    assert_little_is_trained_twice(session.records, step_s)
    assert_no_more_train_than_may(session.records, machines)


def assert_little_is_trained_twice(records: Sequence[m.Record], step_s: float) -> None:
    """A trial goes on where it was saved last, and it is saved as often as it should be."""
    reported: dict[str, int] = {}
    for record in records:
        for event in record.events:
            if isinstance(event, m.TrialReported):
                reported[event.trial] = max(event.iteration, reported.get(event.trial, 0))
        for command in record.commands:
            if isinstance(command, m.StartTrial):
                again = reported.get(command.trial, 0) - command.iteration
                assert again * step_s <= SAVED_S, f"{command.trial} trains {again} steps again"


def assert_no_more_train_than_may(records: Sequence[m.Record], machines: int) -> None:
    """Whoever is told to leave counts until it has left; and all machines are those, and those that replace them."""
    on: dict[str, str] = {}
    held: set[str] = set()
    for record in records:
        for event in record.events:
            match event:
                case m.TrialPaused() | m.TrialReturned() | m.TrialLost() | m.TrialFailed():
                    on.pop(event.trial, None)
                case m.NodeLost():
                    held.discard(event.node)
                    on = {trial: node for trial, node in on.items() if node != event.node}
        for command in record.commands:
            match command:
                case m.StartTrial():
                    on[command.trial] = command.slots[0].node
                case m.AddNode():
                    held.add(command.node)
                case m.ReleaseNode():
                    held.discard(command.node)
        assert len(on) <= machines
        assert len(held - set(on.values())) <= 2 * machines


def asked(session: Session, market: str) -> int:
    return sum(
        isinstance(command, m.AddNode) and isinstance(command.offer, Offer) and command.offer.market == market
        for command in session.commands
    )


@st.composite
def markets(draw: st.DrawFn) -> PlayedCloud:
    """Nobody has to be kind: machines go when they have just begun, for good, or one after the other."""
    boot_s, notice_s = draw(st.sampled_from([0.0, 60.0, 360.0])), draw(st.sampled_from([0.0, 30.0, 120.0]))
    rng = random.Random(draw(st.integers(0, 1 << 30)))
    match draw(st.sampled_from(["brief", "priced", "counted"])):
        case "brief":
            return cloud(ALWAYS, boot_s, notice_s, life_s=draw(st.floats(1.0, 2 * boot_s + 300.0)))
        case "priced":
            return priced(rng, draw(st.floats(0.2, 1.6)), boot_s, notice_s)
    most, stays = draw(st.integers(1, 6)), draw(st.floats(0.1, 0.99))
    counts = [float(rng.randint(0, most))]
    for _ in range(400):
        counts.append(counts[-1] if rng.random() < stays else float(rng.choice([0, rng.randint(0, most)])))
    return cloud(draw(st.sampled_from([counts, ALWAYS, NEVER])), boot_s, notice_s)


class Drawn:
    """What the property is tested with."""

    market = markets()
    algorithm = st.sampled_from(sorted(ALGORITHMS))
    machines = st.integers(1, 6)
    step_s = st.floats(2.0, 600.0)
    times = st.floats(1.0, 3.0)
    policy = st.sampled_from(POLICIES)
    start_s = st.sampled_from([0.0, 2.0, START_S])
    midway = st.booleans()


def _never_late(
    market: PlayedCloud,
    algorithm: str,
    machines: int,
    step_s: float,
    times: float,
    policy: type[LatePolicy],
    start_s: float,
    midway: bool,
) -> None:
    session = run_of(market, algorithm, machines, step_s, times, policy, start_s=start_s, midway=midway).run()
    assert_in_time(session, machines, step_s)


DRAWN = given(
    Drawn.market,
    Drawn.algorithm,
    Drawn.machines,
    Drawn.step_s,
    Drawn.times,
    Drawn.policy,
    Drawn.start_s,
    Drawn.midway,
)
USUAL = settings(derandomize=True, deadline=None, phases=[Phase.generate])
test_it_is_in_time_whatever_the_market_does = settings(USUAL, max_examples=60)(DRAWN(_never_late))
test_it_is_in_time_in_many_markets = pytest.mark.slow(settings(USUAL, max_examples=400)(DRAWN(_never_late)))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.__name__)
def test_where_spot_machines_stay_no_others_are_asked_for(algorithm: str, policy: type[LatePolicy]) -> None:
    session = run_of(cloud(ALWAYS), algorithm, 3, 60.0, 1.5, policy).run()
    assert_in_time(session, 3, 60.0)
    assert asked(session, "on-demand") == 0
    assert asked(session, "spot") <= 3
    assert session.view.cost_usd() == pytest.approx(0.3 * machine_hours(session.records))


@pytest.mark.parametrize("deadline_s", [40.0, 61.0, 100.0])
def test_no_machine_is_asked_for_that_cannot_be_there_before_the_deadline(deadline_s: float) -> None:
    market, algorithm, boot_s = cloud(ALWAYS), ALGORITHMS["FIFO"](), 60.0
    session = world(
        algorithm,
        cloud=market,
        allocator=in_time(market, algorithm, deadline_s, 4),
        workload=Uneven(0.25),
        deadline_s=deadline_s,
        machines=4,
    ).run()
    asked_s = [record.at_s for record in session.records for each in record.commands if isinstance(each, m.AddNode)]
    assert all(at_s + boot_s < deadline_s for at_s in asked_s) and len(asked_s) == (0 if deadline_s < boot_s else 4)


def machine_hours(records: Sequence[m.Record]) -> float:
    """From when machines were paid for until they were given back."""
    since: dict[str, float] = {}
    hours = 0.0
    for record in records:
        for event in record.events:
            if isinstance(event, m.NodeBilled):
                since[event.node] = event.billed_from_s
        for command in record.commands:
            if isinstance(command, m.ReleaseNode):
                hours += (record.at_s - since.pop(command.node)) / 3600
    assert not since
    return hours


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.__name__)
def test_without_spot_machines_it_waits_and_is_in_time_on_demand(policy: type[LatePolicy]) -> None:
    session = run_of(cloud(NEVER), "FIFO", 2, 60.0, 2.0, policy).run()
    assert_in_time(session, 2, 60.0)
    assert asked(session, "spot") == 0


class LaterSlower(Synthetic):
    """All trials but the first two take 5% longer."""

    def __init__(self, step_s: float) -> None:
        super().__init__("loss", "min", step_s=step_s)
        self._trials: dict[str, int] = {}

    def step_s(self, config: Config, iteration: int) -> float:
        number = self._trials.setdefault(repr(config), len(self._trials))
        return super().step_s(config, iteration) * (1.05 if number > 1 else 1.0)


def test_steps_that_take_5_percent_longer_than_any_before_are_foreseen() -> None:
    """Only a step of the first two was measured when the last moment for on-demand machines has come."""
    market, algorithm, step_s = cloud(NEVER), FIFO(20, 40), 60.0
    deadline_s = 1.3 * enough_s(market, algorithm, 2, step_s)
    session = world(
        algorithm,
        cloud=market,
        allocator=in_time(market, algorithm, deadline_s, 2, LastMoment),
        workload=LaterSlower(step_s),
        deadline_s=deadline_s,
        machines=2,
        start_s=START_S,
        checkpoint_every_s=SAVED_S,
    ).run()
    assert_in_time(session, 2, step_s)
    assert session.view.at_s > 0.95 * deadline_s, "until then it has waited"


def test_where_spot_costs_more_than_on_demand_at_first_on_demand_machines_are_taken() -> None:
    series = PriceSeries("a", np.array([0.0]), np.array([2.0]))
    market = PlayedCloud({"a": Kind(1.0)}, Prices({"a": series}), begin_unix_s=9e3, boot_s=60.0)
    session = run_of(market, "FIFO", 2, 60.0, 1.5).run()
    assert_in_time(session, 2, 60.0)
    assert asked(session, "spot") == 0


def test_waiting_for_the_market_is_no_reason_to_give_up() -> None:
    """For hours nothing runs, and nothing is paid for."""
    counts = [0.0] * 60 + [9.0] * 1000
    session = run_of(cloud(counts), "FIFO", 2, 60.0, 3.0, LastMoment).run()
    assert_in_time(session, 2, 60.0)
    assert asked(session, "on-demand") <= 2, "for the first step only"
    assert session.view.cost_usd() < 0.5 * machine_hours(session.records)


def test_machines_that_go_at_once_are_not_asked_for_all_the_time() -> None:
    market = cloud(ALWAYS, boot_s=0.0, life_s=1.0)
    session = run_of(market, "FIFO", 2, 60.0, 2.0, LastMoment).run()
    assert_in_time(session, 2, 60.0)
    checks = session.view.at_s / 60.0
    assert asked(session, "spot") <= 2 * (checks + 2)


def test_a_trial_that_moves_does_not_lose_its_place_to_one_that_has_not_begun() -> None:
    """Otherwise more are begun than there are machines, and the last ones are late."""
    session = run_of(cloud([9.0, 0.0, 0.0] * 500), "FIFO", 2, 100.0, 1.5, UniformProgress).run()
    assert_in_time(session, 2, 100.0)
    begun: list[str] = []
    ended: set[str] = set()
    for record in session.records:
        begun += [
            event.trial for event in record.events if isinstance(event, m.TrialReported) and event.trial not in begun
        ]
        ended |= {d.trial for d in record.decisions if isinstance(d, m.StatusChanged) and d.status == "completed"}
        assert len(set(begun) - ended) <= 2


def test_machines_stay_while_the_next_stage_has_use_for_them() -> None:
    """Nine trials, then three, then one, on three machines: each is asked for once."""
    session = run_of(cloud(ALWAYS), "SuccessiveHalving", 3, 60.0, 1.5).run()
    assert asked(session, "spot") == 3


def test_machines_are_as_fast_as_those_on_demand() -> None:
    traces = {
        name: Capacity(GAP_S, np.array(ALWAYS), usd) for name, usd in (("slow", 0.01), ("a/x", 0.3), ("a/y", 0.2))
    }
    kinds = {"slow": Kind(1.0, speed=1.0), "a/x": Kind(2.0, speed=4.0), "a/y": Kind(2.0, speed=4.0)}
    market = PlayedCloud(kinds, capacity=traces, boot_s=60.0)
    session = run_of(market, "FIFO", 2, 60.0).run()
    assert_in_time(session, 2, 15.0)
    assert {command.offer.type for command in session.commands if isinstance(command, m.AddNode) and command.offer} == {
        "a/y"
    }


@settings(USUAL, max_examples=5)
@given(Drawn.market, Drawn.algorithm, Drawn.machines, st.floats(60.0, 600.0), Drawn.policy, st.floats(0.0, 1.0))
def test_a_run_that_is_resumed_makes_the_same_choices(
    market: PlayedCloud, algorithm: str, machines: int, step_s: float, policy: type[LatePolicy], part: float
) -> None:
    """The journal can be replayed from any point, and the driver that did so goes on as the other would have."""
    place = run_of(market, algorithm, machines, step_s, 1.5, policy)
    whole = place.run()
    cut = place.start().turns(int(part * (len(whole.records) - 2)))
    before = cut.records
    assert before == whole.records[: len(before)]
    assert_sound(place.resume(cut.journal).run())


def test_who_begins_in_a_spike_of_the_price_goes_to_spot_machines_when_it_is_over() -> None:
    """What a spot machine costs is not what it cost when the first step was measured."""
    series = PriceSeries("a", np.array([0.0, 4000.0, 6000.0]), np.array([0.1, 2.0, 0.1]))
    market = PlayedCloud({"a": Kind(1.0)}, Prices({"a": series}), begin_unix_s=5500.0, boot_s=60.0)
    view = run_of(market, "FIFO", 4, 600.0, times=5.0).run().view
    assert {view.offers[use.node].market for use in view.machines if use.from_s < 500.0} == {"on-demand"}
    on_demand = [use for use in view.machines if view.offers[use.node].market == "on-demand"]
    assert view.status == "succeeded" and max(use.to_s for use in on_demand) < 3600.0


@pytest.mark.parametrize("seed", range(3))
def test_a_market_that_is_played_faster_brings_the_same(seed: int) -> None:
    def played(pace: float) -> tuple[float, float]:
        market = replace(priced(random.Random(seed), 0.5), pace=pace)
        algorithm = ALGORITHMS["SuccessiveHalving"]()
        stages = algorithm.stages()
        assert stages is not None
        deadline_s = 200_000.0 / pace
        allocator = InTime(market, stages, deadline_s, START_S / pace, NeverLate, SAVED_S / pace)
        session = world(
            algorithm,
            cloud=market,
            allocator=allocator,
            workload=Uneven(900.0 / pace),
            deadline_s=deadline_s,
            machines=3,
            start_s=START_S / pace,
            checkpoint_every_s=SAVED_S / pace,
        ).run()
        return session.view.at_s * pace, session.view.cost_usd()

    assert played(64.0) == pytest.approx(played(1.0), rel=1e-6)
