"""A run of the real controller on a simulated cluster, without a journal, and what is seen of it.

It ends with the first report that reaches the target. An algorithm that comes to its own end before that (Hyperband has
a last bracket) begins again with other configurations, as often as it takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from _fluid_tasks import Task

from elastune import messages as m
from elastune.algorithm import Algorithm
from elastune.allocate import Allocator
from elastune.cluster.workload import Workload
from elastune.errors import RunFailed
from elastune.experiment import Experiment
from elastune.simulation import Simulation
from elastune.tuner import Tuner

BETWEEN_SEEDS = 1000
"""From the seed of a run to that of the next time the algorithm begins."""
MOST_BEGINNINGS = 1000
GRACE_S = 1e-9


@dataclass(frozen=True, slots=True)
class Outcome:
    """`utilisation`: of the device-seconds that were held those with at least one trial. `useful`: the work that was
    reported, in seconds on a device of its own, over the same; with several trials on a device it can be above 1.
    """

    target_s: float | None
    best: float | None
    seconds: float
    device_s: float
    utilisation: float
    useful: float
    begun: int
    iterations: int
    course: tuple[tuple[float, float, float], ...] = field(repr=False)
    """Whenever the best value became better: seconds, device-seconds, and the value."""


def run(
    known: Task,
    algorithm: Callable[[], Algorithm],
    allocator: Callable[[], Allocator],
    simulation: Simulation,
    seed: int,
    devices: int,
    limit_s: float | None,
    to_target: bool,
) -> Outcome:
    """On machines of one device. Without a limit the algorithm is run once, to its end."""
    assert isinstance(simulation.workload, Workload)
    watch = Watch(known, simulation.workload, to_target)
    for again in range(MOST_BEGINNINGS if limit_s is not None else 1):
        left_s = None if limit_s is None else limit_s - watch.seconds
        if watch.target_s is not None or (left_s is not None and left_s <= 1e-6):
            break
        tuner = Tuner(
            None,
            space=known.space,
            metric=known.metric,
            mode=known.mode,
            algorithm=algorithm(),
            allocator=allocator(),
            machines=devices,
            devices=1,
            deadline=left_s,
            grace=GRACE_S,
            seed=seed + again * BETWEEN_SEEDS,
        )
        simulation.check(tuner.experiment)
        _play(tuner.experiment, simulation, watch)
    return watch.outcome()


def _play(experiment: Experiment, simulation: Simulation, watch: Watch) -> None:
    """The loop of `control/run.py`, with nothing written."""
    controller, cluster = experiment.controller(), simulation.cluster(experiment, 0.0)
    spending = controller.fleet.spending
    settings, limits = experiment.settings, experiment.settings.limits
    whose = (settings.name, settings.metric, settings.mode, experiment.seed)
    turn = m.Turn(0.0, (m.RunStarted(*whose, limits.deadline_s, limits.budget_usd, 0.0, 0.0, {}, {}),))
    watch.begin(spending.spent_device_s)
    while not controller.done:
        step = controller.handle(turn)
        cluster.submit(step.commands)
        watch.see(turn, step.commands)
        if watch.target_s is not None:
            break
        if not controller.done:
            turn = cluster.poll(controller.wake_s)
    watch.end()
    for decision in step.decisions:
        if isinstance(decision, m.RunEnded) and decision.status == "failed" and not watch.reports:
            raise RunFailed(decision.reason)


class Watch:
    """What is seen, over all times that the algorithm has begun."""

    def __init__(self, known: Task, workload: Workload, to_target: bool) -> None:
        self._task, self._workload, self._to_target = known, workload, to_target
        self.seconds = 0.0
        self.target_s: float | None = None
        self.reports = 0
        self._begun_s = self._past_device_s = self._busy_s = self._work_s = 0.0
        self._spent_device_s: Callable[[float], float] = lambda at_s: 0.0
        self._best: float | None = None
        self._course: list[tuple[float, float, float]] = []
        self._trials = 0
        self._configs: dict[str, m.Config] = {}
        self._places: dict[str, tuple[m.Slot, ...]] = {}
        self._on: Counter[tuple[str, int]] = Counter()
        """How many trials are on each of the devices that have any."""

    def begin(self, spent_device_s: Callable[[float], float]) -> None:
        self._begun_s, self._spent_device_s = self.seconds, spent_device_s

    def end(self) -> None:
        self._past_device_s = self._device_s()
        self._spent_device_s = lambda at_s: 0.0
        self._trials += len(self._configs)
        self._configs, self._places, self._on = {}, {}, Counter()

    def see(self, turn: m.Turn, commands: tuple[m.AnyCommand, ...]) -> None:
        """Until now the devices were as the last turn left them."""
        at_s = self._begun_s + turn.at_s
        self._busy_s += (at_s - self.seconds) * len(self._on)
        self.seconds = at_s
        for event in turn.events:
            match event:
                case m.TrialReported():
                    self._report(event)
                case m.TrialResized():
                    self._place(event.trial, event.slots)
                case m.TrialPaused() | m.TrialReturned() | m.TrialFailed() | m.TrialLost():
                    self._place(event.trial, ())
        for command in commands:
            if isinstance(command, m.StartTrial):
                self._configs[command.trial] = command.config
                self._place(command.trial, command.slots)

    def _place(self, trial: str, slots: tuple[m.Slot, ...]) -> None:
        self._on.subtract({(slot.node, slot.device) for slot in self._places.pop(trial, ())})
        if slots:
            self._places[trial] = slots
            self._on.update({(slot.node, slot.device) for slot in slots})
        self._on = +self._on

    def _report(self, event: m.TrialReported) -> None:
        value = m.to_float(event.metrics[self._task.metric])
        self.reports += 1
        self._work_s += self._workload.step_s(self._configs[event.trial], event.iteration)
        if value is None:
            return
        sign = 1.0 if self._task.mode == "min" else -1.0
        if self._best is None or sign * value < sign * self._best:
            self._best = value
            self._course.append((self.seconds, self._device_s(), value))
        if self._to_target and self.target_s is None and self._task.reached(value):
            self.target_s = self.seconds

    def _device_s(self) -> float:
        return self._past_device_s + self._spent_device_s(self.seconds - self._begun_s)

    def outcome(self) -> Outcome:
        device_s = self._device_s()
        return Outcome(
            self.target_s,
            self._best,
            self.seconds,
            device_s,
            self._busy_s / device_s,
            self._work_s / device_s,
            self._trials,
            self.reports,
            tuple(self._course),
        )
