"""Small worlds for tests: an experiment and the simulated cluster it runs on, to be run, crashed and resumed."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from elastune import messages as m
from elastune.algorithm import Algorithm
from elastune.allocate import Allocator
from elastune.cluster.simulated import Fault, Machines, SimulatedCluster, perfect_speedup
from elastune.cluster.workload import Curve, Stragglers, Synthetic, Workload
from elastune.control.controller import Controller
from elastune.control.run import Loop, recover
from elastune.experiment import Experiment
from elastune.joint import join
from elastune.market.cloud import PlayedCloud
from elastune.profile.scaling import Scaling
from elastune.record.journal import MemoryJournal
from elastune.record.projection import RunView, busy_device_s
from elastune.search import Searcher, make_searcher
from elastune.simulation import Simulation
from elastune.space import Space, loguniform, uniform
from elastune.spec import Limits, Mode, Retention, Settings, Terms

KEY = "the key of the snapshots"
SPACE = Space({"lr": loguniform(1e-4, 1e-1), "momentum": uniform(0.0, 0.99)})


@dataclass
class Session:
    """One driver at work: it ends by itself (`run`) or is cut off (`turns`)."""

    controller: Controller
    cluster: SimulatedCluster
    journal: MemoryJournal
    loop: Loop

    def turns(self, count: int) -> Session:
        """So many turns more, or fewer if the run ends before."""
        for _ in range(count):
            if self.controller.done:
                break
            self.loop.turn(self.cluster.poll(self.controller.wake_s))
        return self

    def run(self, at_most: int = 100_000) -> Session:
        """Until the end; a run that goes on and on is stopped as a failure."""
        self.turns(at_most)
        assert self.controller.done, f"the run has not ended after {at_most} turns"
        return self

    @property
    def records(self) -> list[m.Record]:
        return [m.decode_record(body) for body in self.journal.read()]

    @property
    def view(self) -> RunView:
        return RunView.of(self.records)

    @property
    def commands(self) -> list[m.AnyCommand]:
        return [command for record in self.records for command in record.commands]

    @property
    def decisions(self) -> list[m.AnyDecision]:
        return [decision for record in self.records for decision in record.decisions]


@dataclass(frozen=True)
class World:
    experiment: Experiment
    cluster: Callable[[float], SimulatedCluster]

    def start(self) -> Session:
        session = self._session(self.experiment.controller(), MemoryJournal(), 0, 0.0)
        begins = started(self.experiment.settings, self.experiment.seed)
        session.loop.start(msgspec.structs.replace(begins, experiments=self.experiment.recorded()))
        return session

    def run(self, at_most: int = 100_000) -> Session:
        return self.start().run(at_most)

    def resume(self, journal: MemoryJournal, after_s: float = 0.0) -> Session:
        """A new driver on a new cluster, some time later: of the old world only the journal is left."""
        view = RunView()
        controller, seq = recover(journal, self.experiment.controller(), KEY, view.feed)
        session = self._session(controller, journal, seq, view.at_s + after_s)
        session.loop.resume(view.at_s)
        return session

    def adopt(self, crashed: Session) -> Session:
        """A new driver finds the machines of the old one; the workers ended with it."""
        view, cluster = RunView(), crashed.cluster
        cluster._trials.clear()
        cluster._on.clear()
        controller, seq = recover(crashed.journal, self.experiment.controller(), KEY, view.feed)
        session = Session(controller, cluster, crashed.journal, Loop(controller, cluster, crashed.journal, seq, KEY))
        session.loop.resume(view.at_s)
        return session

    def _session(self, controller: Controller, journal: MemoryJournal, seq: int, now_s: float) -> Session:
        cluster = self.cluster(now_s)
        return Session(controller, cluster, journal, Loop(controller, cluster, journal, seq, KEY))


def world(
    algorithm: Algorithm,
    *,
    name: str = "t",
    searcher: str | Searcher = "random",
    allocator: Allocator | None = None,
    space: Space = SPACE,
    metric: str = "loss",
    mode: Mode = "min",
    machines: int = 1,
    devices: int = 1,
    seed: int = 0,
    deadline_s: float | None = None,
    budget_usd: float | None = None,
    budget_device_s: float | None = None,
    price: float = 0.0,
    max_retries: int = 3,
    grace_s: float = 30.0,
    retention: Retention = Retention(),
    workload: Workload | None = None,
    request_s: float = 0.0,
    boot_s: float = 0.0,
    lifetime_s: float | None = None,
    notice_s: float = 0.0,
    start_s: float = 0.0,
    stragglers: float = 0.0,
    faults: Sequence[Fault] = (),
    checkpoint_every_s: float = 60.0,
    with_checkpoints: bool = True,
    scaling: Mapping[float, float] | None = None,
    resize_s: float = 0.0,
    midway: bool = False,
    cloud: PlayedCloud | None = None,
) -> World:
    """Steps of synthetic trials take one second; machines come at once, cost nothing and live for ever."""
    limits = Limits(deadline_s, budget_usd, budget_device_s)
    settings = Settings(name, metric, mode, limits, price, max_retries, grace_s, retention=retention)
    experiment = Experiment(
        settings,
        space,
        algorithm,
        make_searcher(searcher),
        seed,
        machines,
        devices,
        checkpoint_every_s,
        allocator=allocator,
    )

    def cluster(now_s: float) -> SimulatedCluster:
        return SimulatedCluster(
            workload=workload or Synthetic(metric, mode, seed=seed),
            machines=Machines(devices, request_s, boot_s, lifetime_s, notice_s, price),
            stragglers=Stragglers(stragglers, seed),
            faults=faults,
            start_s=start_s,
            checkpoint_every_s=checkpoint_every_s,
            with_checkpoints=with_checkpoints,
            speedup=perfect_speedup if scaling is None else Scaling(scaling),
            resize_s=resize_s,
            midway=midway,
            seed=seed,
            now_s=now_s,
            cloud=cloud,
        )

    return World(experiment, cluster)


def timed_world(
    algorithm: Algorithm,
    *,
    deadline_s: float,
    budget_usd: float | None = None,
    budget_device_s: float | None = None,
    price: float = 0.0,
    machines: int = 1000,
    devices: int = 1,
    request_s: float = 0.0,
    boot_s: float = 0.0,
    start_s: float = 0.0,
    **more: Any,
) -> World:
    """For algorithms that plan machines and widths themselves: they are told what the world is like."""
    algorithm, limits = copy.deepcopy(algorithm), Limits(deadline_s, budget_usd, budget_device_s)
    allocator = algorithm.prepare(Terms(limits, machines, devices, price, ready_s=request_s + boot_s, start_s=start_s))
    return world(
        algorithm,
        allocator=allocator,
        deadline_s=deadline_s,
        budget_usd=budget_usd,
        budget_device_s=budget_device_s,
        price=price,
        machines=machines,
        devices=devices,
        request_s=request_s,
        boot_s=boot_s,
        start_s=start_s,
        **more,
    )


def shared_world(
    *places: World,
    machines: int = 1,
    devices: int = 1,
    priorities: Mapping[str, float] | None = None,
    allocator: Allocator | None = None,
    simulation: Simulation | None = None,
    deadline_s: float | None = None,
    max_retries: int = 3,
    retention: Retention = Retention(),
    checkpoint_every_s: float = 60.0,
) -> World:
    """The experiments of several worlds in one, with machines and limits of its own."""
    experiments = [place.experiment for place in places]
    first, world = experiments[0], simulation or Simulation()
    settings = Settings(
        "all", first.settings.metric, first.settings.mode, Limits(deadline_s), 0.0, max_retries, retention=retention
    )
    search = (first.space, first.algorithm, first.searcher, first.seed)
    whole = Experiment(settings, *search, machines, devices, checkpoint_every_s, allocator=allocator)
    joint = join(whole, experiments, priorities or {})
    return World(joint, lambda now_s: world.cluster(joint, now_s))


def started(settings: Settings, seed: int = 0) -> m.RunStarted:
    limits = settings.limits
    return m.RunStarted(
        name=settings.name,
        metric=settings.metric,
        mode=settings.mode,
        seed=seed,
        deadline_s=limits.deadline_s,
        budget_usd=limits.budget_usd,
        price_usd_per_device_hour=settings.price_usd_per_device_hour,
        started_unix_s=0.0,
        experiment={},
        versions={},
        budget_device_s=limits.budget_device_s,
    )


class Scripted(Workload):
    """Curves by the number of the trial, in the order in which configurations are first seen; a step takes a second."""

    def __init__(self, *curves: Sequence[m.Metrics]) -> None:
        self._curves = curves
        self._seen: list[m.Config] = []

    def curve(self, config: m.Config) -> Curve:
        if config not in self._seen:
            self._seen.append(config)
        reports = self._curves[self._seen.index(config) % len(self._curves)]
        return lambda iteration: reports[iteration - 1] if iteration <= len(reports) else None

    def step_s(self, config: m.Config, iteration: int) -> float:
        return 1.0


def losses(*values: float) -> list[m.Metrics]:
    return [{"loss": value} for value in values]


def assert_every_iteration_once(view: RunView) -> None:
    for trial in view.trials.values():
        iterations = [report.iteration for report in trial.reports]
        assert iterations == list(range(1, len(iterations) + 1)), (trial.id, iterations)


def assert_no_slot_is_shared(records: Sequence[m.Record]) -> None:
    """From commands and events alone: a device is handed out only when it is there and has room, and every trial on it
    has a lane of its own.
    """
    at: dict[str, dict[m.Slot, float]] = {}
    going: dict[str, dict[m.Slot, float]] = {}
    ready: dict[str, int] = {}

    def node_gone(node: str) -> None:
        """A gang falls with any of its members; who was only about to come stays where it is."""
        ready.pop(node, None)
        for places in (at, going):
            for trial in [trial for trial, slots in places.items() if any(slot.node == node for slot in slots)]:
                del places[trial]
        for trial in going.keys() - at.keys():
            del going[trial]

    def held_by_others(trial: str) -> dict[m.Slot, float]:
        """Whoever is told to move holds what it has and what it will have: the larger part where both are one slot."""
        found: dict[m.Slot, float] = {}
        for other, held in (*at.items(), *going.items()):
            if other != trial:
                found |= {slot: max(part, found.get(slot, 0.0)) for slot, part in held.items()}
        return found

    def check(trial: str, slots: tuple[m.Slot, ...], share: float) -> dict[m.Slot, float]:
        others = held_by_others(trial)
        assert len(set(slots)) == len(slots) and not others.keys() & set(slots), f"{trial} was put on {slots}"
        assert all(slot.device < ready.get(slot.node, 0) for slot in slots), f"{slots} are not all there"
        assert share == 1 or (0 < share < 1 and len(slots) == 1), f"{trial} has {share} of {slots}"
        for place in {(slot.node, slot.device) for slot in slots}:
            taken = sum(part for slot, part in others.items() if (slot.node, slot.device) == place)
            assert taken + share <= 1 + 1e-9, f"{trial} was put on {slots}, of which {taken} is taken"
        return dict.fromkeys(slots, share)

    for record in records:
        hidden = {decision.index for decision in record.decisions if isinstance(decision, m.EventHidden)}
        for event in (event for index, event in enumerate(record.events) if index not in hidden):
            match event:
                case m.NodeReady():
                    ready[event.node] = event.devices
                case m.NodeLost():
                    node_gone(event.node)
                case m.TrialResized():
                    if event.trial in going and tuple(going[event.trial]) == event.slots:
                        at[event.trial] = going.pop(event.trial)
                case m.TrialPaused() | m.TrialReturned() | m.TrialFailed() | m.TrialLost() | m.CheckpointDamaged():
                    at.pop(event.trial, None)
                    going.pop(event.trial, None)
        for command in record.commands:
            match command:
                case m.ReleaseNode():
                    held = [slot for places in (at, going) for slots in places.values() for slot in slots]
                    assert command.node not in {slot.node for slot in held}, f"{command} has a trial on it"
                    node_gone(command.node)
                case m.StartTrial():
                    assert command.trial not in at, f"{command.trial} runs already"
                    at[command.trial] = check(command.trial, command.slots, command.share)
                case m.ResizeTrial() if command.trial in at:  # the others fell in the same turn: nobody will obey
                    going[command.trial] = check(command.trial, command.slots, command.share)


def assert_time_never_goes_back(records: Sequence[m.Record]) -> None:
    times = [record.at_s for record in records]
    assert times == sorted(times) and all(math.isfinite(at_s) for at_s in times)


def assert_sound(session: Session) -> None:
    """What must hold for every run that has ended."""
    view, records = session.view, session.records
    assert view.status != "running"
    assert_every_iteration_once(view)
    assert_no_slot_is_shared(records)
    assert_time_never_goes_back(records)
    assert not session.controller.fleet.nodes, "machines were not given back"
    assert (view.utilisation() or 0.0) <= 1 + 1e-9, "devices were busy for longer than they were paid for"
    numbers = [command.id for command in session.commands]
    assert numbers == sorted(set(numbers)), "command numbers are not unique and rising"


def had_s(view: RunView, name: str) -> float:
    """For how long devices were busy with trials of one of several experiments."""
    return busy_device_s(busy for busy in view.segments() if m.experiment_of(busy.trial) == name)


def winner(view: RunView) -> tuple[Any, ...]:
    assert view.best is not None
    return view.best.id, view.best.best_value, view.best.best_iteration, view.best.config
