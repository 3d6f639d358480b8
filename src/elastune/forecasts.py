"""What can be said of an experiment before it runs, by what decides about its machines."""

from __future__ import annotations

from elastune.algorithm.elastic_hyperband import ByTheClock
from elastune.allocate import FirstComeFirstServed, Fluid
from elastune.allocate.hypersched import SharedOut
from elastune.allocate.planned import Planned
from elastune.errors import SpecError
from elastune.experiment import Experiment, plans_itself
from elastune.forecast import Forecast, forecast
from elastune.held_forecast import HeldForecast
from elastune.market_forecast import MarketForecast, market_forecast
from elastune.messages import ClockPlan
from elastune.simulation import Simulation
from elastune.timed_forecast import TimedForecast, as_planned, timed_forecast

PROFILE = "measure the training with 'elastune profile', and give planning=Planning(profile=..., cloud=...)"


def has_plan(experiment: Experiment) -> bool:
    """Whether machines and cost are planned before the run."""
    return isinstance(experiment.allocator, Planned) or _is_by_the_clock(experiment)


def plan_of(
    experiment: Experiment, simulation: Simulation | None = None
) -> Forecast | TimedForecast | HeldForecast | MarketForecast:
    """`simulation` says how long steps take, which only a market asks."""
    if experiment.market is not None:
        return market_forecast(experiment, simulation)
    instance = None if experiment.cloud is None else experiment.cloud.instance
    allocator = experiment.allocator
    if isinstance(allocator, Planned):
        return forecast(allocator)
    if isinstance(experiment.algorithm, ByTheClock) and _is_by_the_clock(experiment):
        return timed_forecast(experiment.algorithm, experiment.terms(), instance)
    if isinstance(allocator, SharedOut):
        return HeldForecast(experiment.terms(), allocator.machines, instance=instance)
    if allocator is None or isinstance(allocator, FirstComeFirstServed | Fluid):
        machines = allocator.machines if isinstance(allocator, FirstComeFirstServed) else experiment.machines
        advice = "" if experiment.algorithm.stages() is None else PROFILE
        return HeldForecast(experiment.terms(), machines, experiment.settings.grace_s, instance, advice)
    raise SpecError(
        f"there is nothing to say before the run: how many machines are held {type(allocator).__name__} decides in it; "
        "a simulation shows what it would do"
    )


def recorded_plan(experiment: Experiment) -> ClockPlan | None:
    """For the journal; what an allocator plans is there as a decision."""
    if not _is_by_the_clock(experiment):
        return None
    if isinstance(experiment.allocator, SharedOut):
        return HeldForecast(experiment.terms(), experiment.allocator.machines).recorded()
    assert isinstance(experiment.algorithm, ByTheClock)
    return as_planned(experiment.algorithm, experiment.terms()).recorded()


def _is_by_the_clock(experiment: Experiment) -> bool:
    """Whether the algorithm has planned, for a deadline and a budget, which machines it holds until when."""
    limits, algorithm = experiment.settings.limits, experiment.algorithm
    if limits.deadline_s is None or (limits.budget_usd is None and limits.budget_device_s is None):
        return False
    in_rounds = isinstance(algorithm, ByTheClock) and plans_itself(algorithm)
    return in_rounds or isinstance(experiment.allocator, SharedOut)
