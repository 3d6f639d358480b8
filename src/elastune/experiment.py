"""An experiment: everything a user asked for, checked when it is made, before anything is written or started."""

from __future__ import annotations

import copy
import inspect
import json
import logging
import os
import pickle
import re
import reprlib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import cloudpickle
import fsspec
import msgspec

from elastune.algorithm.base import Algorithm, TrialSource
from elastune.allocate import Allocator, FirstComeFirstServed
from elastune.control.controller import Controller
from elastune.control.party import Party
from elastune.errors import SpecError
from elastune.messages import Config, Offer, StartedExperiment
from elastune.planning import Planning
from elastune.profile.cloud import Cloud
from elastune.profile.job import JobProfile
from elastune.reproducible import devices_for_one, goes_by_order, refuse_clocks
from elastune.saving import SavingRule
from elastune.search import GridSearcher, HPOAlgorithm, Searcher, make_searcher
from elastune.space import Space
from elastune.spec import Limits, Mode, Retention, Settings, Terms, Width, Workers, require_int, to_width
from elastune.units import parse_device_time, parse_duration, parse_hourly_price, parse_money

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

    from elastune.market.cloud import PlayedCloud
    from elastune.spot import Spot

Duration = str | float | timedelta
Money = str | float

log = logging.getLogger("elastune")

MOST_DEVICES = 1_000_000
UNSAVED_S = 600.0
"""How old the last checkpoint of a trial may be where that is found out in the run."""
COLD_START_S = 3.0
"""What the workers of a new machine take to start, where it was not profiled."""
LONGEST_DEADLINE_S = 3650 * 86_400.0
LONGEST_NAME = 100
"""File systems end at 255 bytes, and names of checkpoints and logs are made of it."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True)
class Experiment:
    settings: Settings
    space: Space
    algorithm: Algorithm
    searcher: Searcher
    seed: int
    machines: int
    devices: int
    checkpoint_every_s: float | SavingRule
    checkpoints: str | None = None
    workers: Workers = Workers()
    provider: Literal["here", "local"] = "here"
    boot_s: float = 0.0
    allocator: Allocator | None = None
    """None: first come, first served, with `devices_per_trial` each."""
    devices_per_trial: Width = 1
    profile: JobProfile | None = None
    cloud: Cloud | None = None
    """What the run is planned with, if it is."""
    market: PlayedCloud | None = None
    """Where machines come from that may be taken away."""
    reproducible: bool = False
    """Whether a second run must give the same numbers."""
    start_with: tuple[Config, ...] = ()
    """What is tried before the searcher suggests."""

    def controller(self) -> Controller:
        """A controller at the very beginning. It gets copies: the same experiment can be run again."""
        allocator = self.allocator or FirstComeFirstServed(self.machines, self.devices_per_trial)
        algorithm, searcher, allocator = cloudpickle.loads(
            cloudpickle.dumps((self.algorithm, self.searcher, allocator))
        )
        allocator.setup(self.terms())
        return Controller(self.settings, [self.party(algorithm, searcher)], allocator)

    def party(self, algorithm: Algorithm, searcher: Searcher, priority: float = 1.0) -> Party:
        """This experiment in a run, with copies of its algorithm and its searcher."""
        settings = self.settings
        searcher.setup(self.space, settings.mode, self.seed)
        source = TrialSource(settings.name, searcher, self.space, self.seed, given=deque(self.start_with))
        algorithm.setup(source)
        return Party(settings.name, settings.metric, settings.mode, algorithm, source, priority)

    def each(self) -> tuple[Experiment, ...]:
        """The experiments of its run."""
        return (self,)

    def recorded(self) -> tuple[StartedExperiment, ...] | msgspec.UnsetType:
        """For the journal, where several share the run."""
        return msgspec.UNSET

    def terms(self) -> Terms:
        """What an algorithm that plans itself is told."""
        price_usd = self.settings.price_usd_per_device_hour
        limits, configurations = self.settings.limits, _configurations(self.searcher, self.space)
        told = (self.boot_s, self.profile, self.cloud, configurations)
        return _terms(limits, self.machines, self.devices, price_usd, *told)

    def describe(self) -> dict[str, Any]:
        """For people who read the journal."""
        return {
            "space": self.space.describe(),
            "algorithm": {type(self.algorithm).__name__: _arguments(self.algorithm)},
            **self._describe_allocation(),
            "searcher": repr(self.searcher) if "object at" not in repr(self.searcher) else type(self.searcher).__name__,
            "machines": self.machines,
            "devices": self.devices,
            **({"start_with": list(self.start_with)} if self.start_with else {}),
            **({"reproducible": True} if self.reproducible else {}),
            **self._describe_market(),
        }

    def _describe_market(self) -> dict[str, Any]:
        """What an hour of each type costs on demand, in the time of the run."""
        if (market := self.market) is None:
            return {}
        return {"market": {name: market.price(Offer(name), 0.0) for name in market.kinds}}

    def describe_search(self) -> dict[str, Any]:
        """The part of it that has nothing to do with machines."""
        whole = self.describe()
        return {name: whole[name] for name in ("space", "algorithm", "searcher")}

    def _describe_allocation(self) -> dict[str, Any]:
        if self.allocator is not None:
            return {"allocator": {type(self.allocator).__name__: _arguments(self.allocator)}}
        width = self.devices_per_trial
        return {"devices_per_trial": width if isinstance(width, int) else str(width)}


def make_experiment(
    *,
    space: Mapping[str, Any] | Space,
    metric: str,
    mode: Mode,
    algorithm: Algorithm,
    searcher: str | Searcher | type[Searcher] | BaseSampler | HPOAlgorithm | type[HPOAlgorithm] | None,
    deadline: Duration | None,
    budget: Money | None,
    price: Money | None,
    seed: int,
    name: str,
    machines: int,
    devices: int | None,
    devices_per_trial: Width | float | str,
    allocator: Allocator | None,
    checkpoint_every: Duration,
    checkpoints: str | None,
    retention: Retention,
    max_retries: int,
    grace: Duration,
    workers: Workers,
    provider: str,
    boot: Duration,
    planning: Planning | None,
    market: Spot | None,
    reproducible: bool = False,
    start_with: Sequence[Mapping[str, Any]] = (),
) -> Experiment:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise SpecError(f"name={name!r}: must be letters, digits, '-', '_' and '.', beginning with a letter or digit")
    if len(name) > LONGEST_NAME:
        raise SpecError(f"name={reprlib.repr(name)}: has {len(name)} characters: must have at most {LONGEST_NAME}")
    if not isinstance(metric, str) or not metric:
        raise SpecError(f"metric={metric!r}: must be the name of a number that the trainable reports, such as 'loss'")
    if mode not in ("min", "max"):
        raise SpecError(f"mode={mode!r}: must be 'min' (less is better) or 'max'")
    if not isinstance(algorithm, Algorithm):
        raise SpecError(f"algorithm={algorithm!r}: must be an object such as ASHA(n=32, r=1, R=50)")
    if allocator is not None and not isinstance(allocator, Allocator):
        raise SpecError(
            f"allocator={allocator!r}: must be an object of a class that extends elastune.Allocator, such as Fluid()"
        )
    if not isinstance(workers, Workers):
        raise SpecError(f"workers={workers!r}: must be a Workers(fresh_process=..., report_within=..., leak_limit=...)")
    if not isinstance(retention, Retention):
        raise SpecError(f"retention={retention!r}: must be a Retention(keep_last=..., keep_best=...)")
    if not isinstance(reproducible, bool):
        raise SpecError(f"reproducible={reproducible!r}: must be true or false")
    if reproducible:
        refuse_clocks(deadline=deadline, budget=budget, planning=planning, market=market, allocator=allocator)
    require_int("seed", seed, 0)
    require_int("machines", machines, 1)
    require_int("max_retries", max_retries, 0)
    limits = _limits(deadline, budget)
    profile: JobProfile | None = None
    cloud: Cloud | None = None
    if planning is not None:
        _check_planning(planning, devices_per_trial, allocator, price)
        if plans_itself(algorithm):
            profile, cloud = _one_cloud(planning, algorithm)
        elif limits.budget_device_s is not None:
            raise SpecError(f"planning and budget={budget!r}: a plan is made in dollars: give the budget as '$20'")
        else:
            allocator = planned = planning.allocator(algorithm, machines, limits, seed)
            profile, cloud = planned.profile, planned.cloud
        if devices is not None and devices != cloud.devices:
            raise SpecError(f"devices={devices!r}: the machines of cloud {cloud.instance!r} have {cloud.devices}")
        devices, price = cloud.devices, cloud.price_usd_per_hour / cloud.devices
    saving = _saving(checkpoint_every, market)
    if market is not None:
        _check_market(market, devices, devices_per_trial, allocator, price, planning, boot, algorithm)
        unsaved_s = UNSAVED_S if isinstance(saving, SavingRule) else saving
        devices, allocator = 1, market.allocator(algorithm, limits, seed, unsaved_s)
        if isinstance(saving, SavingRule) and market.keeps_deadline(limits):
            saving = replace(saving, longest_s=UNSAVED_S)
    space = space if isinstance(space, Space) else Space(space)
    usual = "grid" if space.has_grid else type(algorithm).searcher
    wanted = usual if searcher is None else searcher
    if reproducible and goes_by_order(algorithm, make_searcher(wanted)):
        width = to_width("devices_per_trial", devices_per_trial)
        devices = devices_for_one(machines, devices, width, algorithm)
    devices = os.cpu_count() or 1 if devices is None else devices
    require_int("devices", devices, 1)
    if machines * devices > MOST_DEVICES:
        raise SpecError(f"machines x devices = {machines * devices}: must be at most {MOST_DEVICES}")
    width = _width_on(machines, devices, devices_per_trial)
    if allocator is not None and width != 1:
        raise SpecError(
            f"devices_per_trial={devices_per_trial!r} and allocator={type(allocator).__name__}: "
            "an allocator says itself how many devices each trial gets; give one of them"
        )
    places = max(1, int(machines * devices / width))
    parallel = places if algorithm.max_concurrent is None else min(places, algorithm.max_concurrent)
    chosen = make_searcher(wanted, parallel)
    price_usd = 0.0 if price is None else parse_hourly_price(price, "price", zero=True)
    boot_s, kind = parse_duration(boot, "boot", zero=True), _provider(provider, boot)
    if plans_itself(algorithm):
        if allocator is not None or width != 1:
            given = f"devices_per_trial={devices_per_trial!r}" if allocator is None else type(allocator).__name__
            raise SpecError(
                f"{type(algorithm).__name__} says itself how many devices each trial gets: leave out {given}"
            )
        algorithm = copy.deepcopy(algorithm)  # what it plans belongs to this experiment
        told = (boot_s, profile, cloud, _configurations(chosen, space))
        allocator = algorithm.prepare(_terms(limits, machines, devices, price_usd, *told))
    if limits.budget_usd is not None and price is None and market is None:
        raise SpecError(f"budget={budget!r} needs a price: give price='$0.10', per device and hour")
    if getattr(algorithm, "n", 1) is None and limits == Limits() and not isinstance(chosen, GridSearcher):
        raise SpecError(f"{type(algorithm).__name__}(n=None) would never end: give n, a deadline or a budget")
    settings = Settings(
        name=name,
        metric=metric,
        mode=mode,
        limits=limits,
        price_usd_per_device_hour=price_usd,
        max_retries=max_retries,
        grace_s=parse_duration(grace, "grace"),
        retention=retention,
    )
    experiment = Experiment(
        settings=settings,
        space=space,
        algorithm=algorithm,
        searcher=chosen,
        seed=seed,
        machines=machines,
        devices=devices,
        checkpoint_every_s=saving,
        checkpoints=_url(checkpoints),
        allocator=allocator,
        devices_per_trial=width,
        workers=workers,
        provider=kind if market is None else "local",
        boot_s=boot_s,
        profile=profile,
        cloud=cloud,
        market=None if market is None else market.cloud,
        reproducible=reproducible,
        start_with=_start_with(start_with, space, chosen),
    )
    _try_out(experiment)
    return experiment


def _start_with(given: object, space: Space, searcher: Searcher) -> tuple[Config, ...]:
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise SpecError(f"start_with={given!r}: must be a list of configurations, such as [{{lr: 0.01}}]")
    if given and isinstance(searcher, GridSearcher):
        raise SpecError("start_with and a grid: a grid is tried in its order, and wholly: give one of them")
    configs = []
    for place, config in enumerate(given):
        if not isinstance(config, Mapping) or space.answers(dict(config)) is None:
            raise SpecError(
                f"start_with[{place}]={config!r}: is not in the space: it needs a value of its domain for each of "
                f"{', '.join(space.definition)}, and nothing else"
            )
        try:  # as it will be in the journal: plain numbers
            configs.append(json.loads(json.dumps(dict(config))))
        except TypeError as error:
            raise SpecError(
                f"start_with[{place}]={config!r}: {error}: give None, bool, int, float, str, list and dict"
            ) from None
    return tuple(configs)


def plans_itself(algorithm: Algorithm) -> bool:
    """Whether it says before the run how many machines and devices it takes."""
    return type(algorithm).prepare is not Algorithm.prepare


def _limits(deadline: Duration | None, budget: Money | None) -> Limits:
    device_s = parse_device_time(budget, "budget")
    try:
        budget_usd = None if budget is None or device_s is not None else parse_money(budget, "budget")
    except SpecError as error:
        raise SpecError(f'{error}, or a time on devices such as "80 device-minutes"') from None
    deadline_s = None if deadline is None else parse_duration(deadline, "deadline")
    if deadline_s is not None and deadline_s > LONGEST_DEADLINE_S:
        raise SpecError(f"deadline={deadline!r}: must be at most ten years (3650d); a bare number counts seconds")
    return Limits(deadline_s, budget_usd, device_s)


def _terms(
    limits: Limits,
    machines: int,
    devices: int,
    price_usd: float,
    boot_s: float,
    profile: JobProfile | None,
    cloud: Cloud | None,
    configurations: int | None,
) -> Terms:
    """What an algorithm that plans itself is told."""
    cold_s = COLD_START_S if profile is None else profile.cold_start.expected_s
    terms = Terms(limits, machines, devices, price_usd, ready_s=boot_s + cold_s, configurations=configurations)
    if cloud is not None:
        ready_s = max(boot_s, cloud.request.expected_s + cloud.boot.expected_s) + cold_s
        terms = replace(terms, minimum_s=cloud.minimum_s, data_usd=cloud.data_usd, ready_s=ready_s)
    if profile is not None:
        terms = replace(
            terms,
            start_s=profile.start.expected_s,
            step_s=profile.step.expected_s,
            speedup=profile.scaling,
        )
    return terms


def _configurations(searcher: Searcher, space: Space) -> int | None:
    """How many there are at most; None: no end of them."""
    return space.grid_size if isinstance(searcher, GridSearcher) and space.has_grid else None


def _one_cloud(planning: Planning, algorithm: Algorithm) -> tuple[JobProfile | None, Cloud]:
    profile, clouds = planning.load()
    if len(clouds) != 1:
        names = ", ".join(cloud.instance for cloud in clouds)
        raise SpecError(f"cloud: {type(algorithm).__name__} plans for one machine type: give one of {names}")
    return profile, clouds[0]


def _check_planning(planning: object, devices_per_trial: object, allocator: object, price: object) -> None:
    """A plan says itself how many devices trials get and what they cost."""
    if not isinstance(planning, Planning):
        raise SpecError(f"planning={planning!r}: must be a Planning(profile=..., cloud=...)")
    if allocator is not None or devices_per_trial != 1:
        given = "allocator" if allocator is not None else f"devices_per_trial={devices_per_trial!r}"
        raise SpecError(f"planning and {given}: a plan says how many devices each trial gets; give one of them")
    if price is not None:
        raise SpecError(f"planning and price={price!r}: the price is that of the planned cloud; give it there")


def _saving(given: Duration, market: Spot | None) -> float | SavingRule:
    """How often to save; "auto": as what a checkpoint costs and how often machines are taken away make it best."""
    if given != "auto":
        try:
            return parse_duration(given, "checkpoint_every", zero=True)
        except SpecError as error:
            raise SpecError(f'{error}, or "auto"') from None
    if market is None:
        return SavingRule()
    cloud = market.cloud
    return SavingRule(notice_s=cloud.notice_s / cloud.pace, noticed_mean_s=cloud.mean_life_s() / cloud.pace)


def _check_market(
    market: object,
    devices: int | None,
    devices_per_trial: object,
    allocator: object,
    price: object,
    planning: object,
    boot: object,
    algorithm: Algorithm,
) -> None:
    """Spot machines have prices and a boot of their own, and each of them one trial."""
    from elastune.spot import Spot

    if not isinstance(market, Spot):
        raise SpecError(f"market={market!r}: must be a Spot(types=..., prices=...)")
    others = (("allocator", allocator), ("price", price), ("planning", planning))
    given = next((name for name, value in others if value is not None), None)
    given = "devices_per_trial" if given is None and devices_per_trial != 1 else given
    given = f"devices={devices}" if given is None and devices not in (None, 1) else given
    if given is not None:
        raise SpecError(
            f"market and {given}: what machines there are and what they cost is up to the market: leave it out"
        )
    if parse_duration(boot, "boot", zero=True):
        raise SpecError(f"market and boot={boot!r}: machines are those of the market: give market.boot instead")
    if plans_itself(algorithm):
        name = type(algorithm).__name__
        raise SpecError(f"market: {name} plans its machines itself: take another algorithm, such as SpotTune or ASHA")


def _width_on(machines: int, devices: int, given: object) -> Width:
    """A width that the machines can offer."""
    name, width = "devices_per_trial", to_width("devices_per_trial", given)
    if width > machines * devices:
        have = f"{machines} machine{'s' * (machines != 1)} x {devices} device{'s' * (devices != 1)}"
        raise SpecError(f"{name}={given!r}: {have} have {machines * devices}: give fewer per trial, or more machines")
    if width > devices and width % devices:
        raise SpecError(
            f"{name}={given!r}: a trial is on one machine or on whole ones: give at most the {devices} devices of one, "
            f"or a multiple of them"
        )
    return width


def _provider(provider: object, boot: object) -> Literal["here", "local"]:
    if provider == "local":
        return "local"
    if provider != "here":
        raise SpecError(
            f"provider={provider!r}: must be 'here' (machines are shares of this computer) or 'local' (each is a Ray "
            "node of its own on this computer)"
        )
    if parse_duration(boot, "boot", zero=True):
        raise SpecError(f"boot={boot!r}: machines that are shares of this computer do not boot; give provider='local'")
    return "here"


def _url(checkpoints: object) -> str | None:
    if checkpoints is None:
        return None
    if not isinstance(checkpoints, str) or not checkpoints:
        raise SpecError(f"checkpoints={checkpoints!r}: must be a folder or a URL such as 's3://bucket/folder'")
    try:
        fsspec.core.url_to_fs(checkpoints)
    except (ValueError, ImportError) as error:
        raise SpecError(f"checkpoints={checkpoints!r} cannot be used: {error}") from None
    return checkpoints if "://" in checkpoints else str(Path(os.path.expanduser(checkpoints)).absolute())


def _try_out(experiment: Experiment) -> None:
    """What only shows when the pieces meet: a searcher that cannot search the space, too few configurations."""
    try:
        searcher: Searcher = pickle.loads(cloudpickle.dumps(experiment.searcher))
        cloudpickle.dumps((experiment.algorithm, experiment.allocator))
    except Exception as error:
        raise SpecError(
            f"algorithm, searcher and allocator must be picklable, so that a run can be resumed: {error}"
        ) from error
    searcher.setup(experiment.space, experiment.settings.mode, experiment.seed)
    taken = [name for name in type(experiment.algorithm).adds if name in experiment.space.definition]
    if taken:
        raise SpecError(
            f"space: {taken[0]!r} is what {type(experiment.algorithm).__name__} adds to every configuration itself: "
            "give the parameter another name"
        )
    wanted = experiment.algorithm.configurations()
    if isinstance(searcher, GridSearcher) and wanted is not None and wanted > searcher.count():
        raise SpecError(
            f"{type(experiment.algorithm).__name__} trains {wanted} configurations, the grid has "
            f"{searcher.count()}: ask for fewer, or add values to grid_search"
        )


def warn_of_constants(space: Space, algorithm: Algorithm) -> None:
    """Perhaps meant, to see how much results vary; more likely a domain that was written wrongly."""
    n = algorithm.configurations() or getattr(algorithm, "n", None)
    if space.is_constant and not space.has_grid and n != 1:
        all_of_them = "all trials" if n is None else f"all {n} trials"
        log.warning("the space has nothing to choose: %s will be the same", all_of_them)


def _arguments(plugin: Algorithm | Allocator) -> dict[str, Any]:
    names = inspect.signature(type(plugin).__init__).parameters
    found = {name: getattr(plugin, name, None) for name in names if name != "self"}
    return {name: value for name, value in found.items() if isinstance(value, str | int | float | bool | None)}
