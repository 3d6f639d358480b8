"""Several tuners on the same machines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from elastune.algorithm import FIFO
from elastune.allocate import Allocator
from elastune.driver import Driver, check_trainable, code_of, kept
from elastune.errors import SpecError, did_you_mean
from elastune.experiment import Duration, Experiment, Money, make_experiment
from elastune.joint import Joint, check_each, check_shared, join
from elastune.run_folder import journal_url, storage_folder
from elastune.space import uniform
from elastune.spec import Retention, Width, Workers
from elastune.tuner import Tuner
from elastune.worker.by_experiment import ByExperiment
from elastune.worker.ultron import prepared


class Together(Driver):
    """Runs several tuners at once, on the same machines.

    Each has its own trainable, space, metric, algorithm, searcher and seed; machines, limits and all else are given
    here, for all of them. Devices that are free go to the one that has the fewest for its priority (`priorities` by
    name, 1 where none is given), unless `allocator` decides otherwise. When one is done or has failed, the others go
    on. `fit` and `simulate` return the result of the whole run; `result["name"]` is that of one of them.
    """

    def __init__(
        self,
        tuners: Sequence[Tuner],
        *,
        priorities: Mapping[str, float] | None = None,
        deadline: Duration | None = None,
        budget: Money | None = None,
        price: Money | None = None,
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
    ) -> None:
        if not isinstance(tuners, Iterable):
            raise SpecError(f"tuners={tuners!r}: must be a list of tuners, such as [nets, trees]")
        if priorities is not None and not isinstance(priorities, Mapping):
            raise SpecError(f"priorities={priorities!r}: must map names of tuners to numbers, such as {{'nets': 2}}")
        tuners = list(tuners)
        experiments = [_experiment(tuner) for tuner in tuners]
        if len(experiments) < 2:
            raise SpecError(f"tuners: {len(experiments)} given: must be at least two; one alone has its own fit()")
        check_each(experiments)
        first = experiments[0]
        names = [experiment.settings.name for experiment in experiments]
        whole = make_experiment(
            space=first.space,
            metric=first.settings.metric,
            mode=first.settings.mode,
            algorithm=first.algorithm,
            searcher=first.searcher,
            deadline=deadline,
            budget=budget,
            price=price,
            seed=first.seed,
            name="-".join(names) if name is None else name,
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
            planning=None,
            market=None,
        )
        check_shared(whole, experiments, _default())
        joint = join(whole, experiments, {} if priorities is None else priorities)
        folder = storage_folder(storage)
        self._trainables = {name: tuner.trainable for name, tuner in zip(names, tuners, strict=True)}
        super().__init__(joint, self._trainables, folder, journal_url(journal))

    @classmethod
    def restore(
        cls, path: str | Path, *, trainables: Mapping[str, object] | None = None, journal: str | None = None
    ) -> Together:
        """Goes on with a run that was interrupted or crashed, with `fit`. `trainables` has, by name, the training
        functions that were mended since.
        """
        path = Path(path)
        experiment, code, simulation = kept(path, journal)
        if not isinstance(experiment, Joint):
            raise SpecError(f"{path}: this run is of one experiment alone: go on with elastune.Tuner.restore")
        assert isinstance(code, dict)
        if trainables is not None and not isinstance(trainables, Mapping):
            raise SpecError(f"trainables={trainables!r}: must map names of tuners to training functions")
        for name, trainable in (trainables or {}).items():
            if name not in code:
                raise SpecError(f"trainables[{name!r}]: there is no such experiment; {did_you_mean(name, code)}")
            check_trainable(trainable)
        together = cls.__new__(cls)
        together._trainables = {name: prepared(each) for name, each in (code | dict(trainables or {})).items()}
        Driver.__init__(together, experiment, together._trainables, path.parent, journal)
        together._goes_on(path, simulation)
        return together

    def _check_trainable(self) -> None:
        for name, trainable in self._trainables.items():
            if trainable is None:
                raise SpecError(
                    f"tuner {name!r} has trainable=None: a run on machines needs a training function; only a "
                    "simulation does without"
                )

    def _code(self) -> bytes:
        return code_of(ByExperiment({name: code_of(trainable) for name, trainable in self._trainables.items()}))


def restore(path: Path, journal: str | None) -> Driver:
    """Of whichever kind the run is."""
    experiment, _, _ = kept(path, journal)
    return (Together if isinstance(experiment, Joint) else Tuner).restore(path, journal=journal)


def _experiment(tuner: object) -> Experiment:
    if not isinstance(tuner, Tuner):
        raise SpecError(f"tuners has {tuner!r}: must be a list of Tuner objects")
    return tuner.experiment


def _default() -> Experiment:
    """What a tuner has that was told nothing of machines and limits."""
    return Tuner(None, space={"x": uniform(0, 1)}, metric="loss", algorithm=FIFO(1)).experiment
