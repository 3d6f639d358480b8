"""The one place that wires the pieces together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from elastune.algorithm.base import Algorithm
from elastune.allocate import Allocator
from elastune.driver import Driver, check_trainable, kept, load
from elastune.errors import RunFailed, SpecError
from elastune.experiment import Duration, Money, make_experiment, warn_of_constants
from elastune.messages import decode_record
from elastune.planning import Planning
from elastune.run_folder import closing, journal_url, open_journal, storage_folder
from elastune.search import HPOAlgorithm, Searcher
from elastune.space import Space
from elastune.spec import Mode, Retention, Width, Workers
from elastune.units import parse_duration

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

    from elastune.forecast import Forecast
    from elastune.held_forecast import HeldForecast
    from elastune.market_forecast import MarketForecast
    from elastune.profiling import Profiled
    from elastune.rerun import Rerun
    from elastune.simulation import Simulation
    from elastune.spot import Spot
    from elastune.timed_forecast import TimedForecast

__all__ = ["Tuner", "load"]


class Tuner(Driver):
    """Tunes a training function.

    `trainable` is a function of a configuration that calls `elastune.report`, a `Trainable` class, or a class with the
    `score` of Ultron. `deadline` is a duration ("20m"), `budget` an amount ("$20") that is spent at `price` per device
    and hour, or a time on devices ("80 device-minutes"). Everything a run needs to be resumed is kept in a folder of
    its own under `storage`; the journal may live in PostgreSQL instead (`journal="postgresql://..."`). With
    `reproducible` a second run gives the same numbers to the last digit, which `rerun` checks. The configurations of
    `start_with` are tried first, and the searcher learns from them.
    """

    def __init__(
        self,
        trainable: object,
        *,
        space: Mapping[str, Any] | Space,
        metric: str,
        mode: Mode = "min",
        algorithm: Algorithm,
        searcher: str | Searcher | type[Searcher] | BaseSampler | HPOAlgorithm | type[HPOAlgorithm] | None = None,
        deadline: Duration | None = None,
        budget: Money | None = None,
        price: Money | None = None,
        seed: int = 0,
        name: str | None = None,
        machines: int = 1,
        devices: int | None = None,
        devices_per_trial: Width | float | str = 1,
        allocator: Allocator | None = None,
        storage: str | Path = "runs",
        journal: str | None = None,
        checkpoint_every: Duration = "60s",
        checkpoints: str | None = None,
        retention: Retention = Retention(),
        max_retries: int = 3,
        grace: Duration = "30s",
        workers: Workers = Workers(),
        provider: Literal["here", "local"] = "here",
        boot: Duration = 0.0,
        planning: Planning | None = None,
        market: Spot | None = None,
        reproducible: bool = False,
        start_with: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        check_trainable(trainable)
        experiment = make_experiment(
            space=space,
            metric=metric,
            mode=mode,
            algorithm=algorithm,
            searcher=searcher,
            deadline=deadline,
            budget=budget,
            price=price,
            seed=seed,
            name=getattr(trainable, "__name__", "experiment").strip("<>") if name is None else name,
            machines=machines,
            devices=devices,
            devices_per_trial=devices_per_trial,
            allocator=allocator,
            checkpoint_every=checkpoint_every,
            checkpoints=checkpoints,
            retention=retention,
            max_retries=max_retries,
            grace=grace,
            workers=workers,
            provider=provider,
            boot=boot,
            planning=planning,
            market=market,
            reproducible=reproducible,
            start_with=start_with,
        )
        warn_of_constants(experiment.space, experiment.algorithm)
        folder = storage_folder(storage)
        super().__init__(experiment, trainable, folder, journal_url(journal))

    @classmethod
    def restore(cls, path: str | Path, *, trainable: object = None, journal: str | None = None) -> Tuner:
        """The tuner of a run that was interrupted or crashed; its `fit` goes on where the journal ends."""
        path = Path(path)
        experiment, code, simulation = kept(path, journal)
        if len(experiment.each()) > 1:
            raise SpecError(f"{path}: several experiments share this run: go on with elastune.Together.restore")
        check_trainable(trainable)
        tuner = cls.__new__(cls)
        Driver.__init__(tuner, experiment, code if trainable is None else trainable, path.parent, journal)
        tuner._goes_on(path, simulation)
        return tuner

    @staticmethod
    def rerun(path: str | Path, *, storage: str | Path | None = None, progress: bool = True) -> Rerun:
        """Run the experiment of a run that is over once more, in a new folder, and compare all that was reported."""
        from elastune.rerun import rerun

        return rerun(path, storage=storage, progress=progress)

    @property
    def has_plan(self) -> bool:
        """Whether machines and cost are planned before the run."""
        from elastune.forecasts import has_plan

        return has_plan(self.experiment)

    def plan(self, simulation: Simulation | None = None) -> Forecast | TimedForecast | HeldForecast | MarketForecast:
        """What the run is expected to take and to cost, and what every other deadline would cost; of an algorithm that
        plans by the clock, such as SEER, what it takes and costs at most; of one that holds its machines to the end, at
        most what the limits allow; on a market, what it takes and costs from several moments of the prices on, with
        steps as long as `simulation` says. Nothing starts.
        """
        from elastune.forecasts import plan_of

        return plan_of(self.experiment, simulation)

    def profile(
        self,
        seconds: Duration = 20.0,
        widths: Sequence[int] | None = None,
        progress: bool = True,
        packed: int = 1,
    ) -> Profiled:
        """Measure how the training scales, on the machines of this experiment: at widths 1, 2, 4, ... for some time
        each, and before that with 2, 3, ... up to `packed` trials on each device. What was found can be saved, edited,
        and planned with. Interrupted it raises KeyboardInterrupt: a part of the widths is no profile.
        """
        from elastune.allocate.stepwise import MEASURED
        from elastune.profile.measure import Measured
        from elastune.profiling import Profiled, profiling_experiment

        experiment = profiling_experiment(self.experiment, parse_duration(seconds, "seconds"), widths, packed)
        result = Driver(experiment, self.trainable, self._storage, self._journal_url).fit(progress)
        if result.status == "interrupted":
            raise KeyboardInterrupt("the profiling was interrupted: there is no profile")
        if result.view.reason != MEASURED:
            raise RunFailed(
                f"run {result.path}: {result.view.reason} before {MEASURED}: there is no profile; "
                "give a space with more configurations, or less time at each width"
            )
        with closing(open_journal(result.path, self._journal_url, must_exist=True)) as journal:
            measured = Measured.of(decode_record(body) for body in journal.read())
        return Profiled.of(measured, self.experiment, packed)
