"""Several experiments on the same machines: what they share, what each has of its own, and what cannot be shared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import cloudpickle

from elastune.allocate import FirstComeFirstServed
from elastune.control.controller import Controller
from elastune.errors import SpecError, did_you_mean
from elastune.experiment import Experiment, plans_itself
from elastune.messages import StartedExperiment
from elastune.spec import require_number


@dataclass(frozen=True, slots=True)
class Joint(Experiment):
    """Of its own fields those count that all share: the name of the run, its limits, machines, checkpoints, workers.
    Where each of `experiments` has its own, they are those of the first.
    """

    experiments: tuple[Experiment, ...] = ()
    priorities: tuple[float, ...] = ()

    def controller(self) -> Controller:
        """At the very beginning. Each gets copies: two of them may have been given the same algorithm."""
        parties = []
        for experiment, priority in zip(self.experiments, self.priorities, strict=True):
            algorithm, searcher = _copied((experiment.algorithm, experiment.searcher))
            parties.append(experiment.party(algorithm, searcher, priority))
        allocator = _copied(self.allocator or FirstComeFirstServed(self.machines, self.devices_per_trial))
        allocator.setup(self.terms())
        return Controller(self.settings, parties, allocator)

    def each(self) -> tuple[Experiment, ...]:
        return self.experiments

    def describe(self) -> dict[str, Any]:
        return {**self._describe_allocation(), "machines": self.machines, "devices": self.devices}

    def recorded(self) -> tuple[StartedExperiment, ...]:
        return tuple(
            StartedExperiment(
                name=experiment.settings.name,
                metric=experiment.settings.metric,
                mode=experiment.settings.mode,
                seed=experiment.seed,
                priority=priority,
                experiment=experiment.describe_search(),
            )
            for experiment, priority in zip(self.experiments, self.priorities, strict=True)
        )


def join(whole: Experiment, experiments: Sequence[Experiment], priorities: Mapping[str, float]) -> Joint:
    """They run with what `whole` has for all of them."""
    names = [experiment.settings.name for experiment in experiments]
    for name, priority in priorities.items():
        if name not in names:
            raise SpecError(f"priorities[{name!r}]: there is no such experiment; {did_you_mean(name, names)}")
        require_number(f"priorities[{name!r}]", priority)
    shared = {field.name: getattr(whole, field.name) for field in fields(Experiment)}
    found = tuple(float(priorities.get(name, 1.0)) for name in names)
    return Joint(**shared, experiments=tuple(experiments), priorities=found)


def check_each(experiments: Sequence[Experiment]) -> None:
    """Refuse those that cannot be told apart, and those that want to decide about machines themselves."""
    names = [experiment.settings.name for experiment in experiments]
    for name in names:
        if names.count(name) > 1:
            raise SpecError(f"name={name!r} is that of {names.count(name)} tuners: give each a name of its own, name=")
    for experiment in experiments:
        name, algorithm = experiment.settings.name, type(experiment.algorithm).__name__
        if plans_itself(experiment.algorithm):
            raise SpecError(
                f"tuner {name!r}: {algorithm} plans machines and widths itself, and cannot share them with others: run "
                "it alone, or take another algorithm, such as ASHA or SuccessiveHalving"
            )
        if experiment.reproducible:
            raise SpecError(
                f"tuner {name!r} is reproducible: of experiments that share machines, who has which depends on time: "
                "run it alone, or without"
            )
        if experiment.market is not None:
            raise SpecError(f"tuner {name!r} has market=: spot machines are chosen for one experiment: run it alone")
        if experiment.cloud is not None:
            raise SpecError(f"tuner {name!r} has planning=: a plan is made for one experiment alone: leave it out")
        if experiment.allocator is not None:
            allocator = type(experiment.allocator).__name__
            raise SpecError(f"tuner {name!r} has allocator={allocator}: one decides for all: give it to Together")


def check_shared(whole: Experiment, experiments: Sequence[Experiment], default: Experiment) -> None:
    """Refuse what an experiment has of its own where that is one for all. What was left at its default is no claim."""
    usual, given = _shared(default), _shared(whole)
    for experiment in experiments:
        for name, value in _shared(experiment).items():
            if value not in (usual[name], given[name]):
                raise SpecError(
                    f"tuner {experiment.settings.name!r} has {name}= of its own: that is one for all that share a run: "
                    "leave it out there, and give it to Together"
                )


def _shared(experiment: Experiment) -> dict[str, object]:
    """By the name that a user gives it."""
    settings = experiment.settings
    return {
        "deadline": settings.limits.deadline_s,
        "budget": (settings.limits.budget_usd, settings.limits.budget_device_s),
        "price": settings.price_usd_per_device_hour,
        "machines": experiment.machines,
        "devices": experiment.devices,
        "devices_per_trial": experiment.devices_per_trial,
        "max_retries": settings.max_retries,
        "grace": settings.grace_s,
        "retention": settings.retention,
        "checkpoint_every": experiment.checkpoint_every_s,
        "checkpoints": experiment.checkpoints,
        "workers": experiment.workers,
        "provider": experiment.provider,
        "boot": experiment.boot_s,
    }


def _copied(thing: Any) -> Any:
    return cloudpickle.loads(cloudpickle.dumps(thing))
