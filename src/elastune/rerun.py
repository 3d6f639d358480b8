"""A run once more, from what its journal keeps, and whether it gives the same numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from elastune.driver import Driver, kept, load
from elastune.errors import RunFailed, SpecError
from elastune.reproducible import Told, compare
from elastune.results import Result
from elastune.run_folder import storage_folder


@dataclass(frozen=True, slots=True)
class Rerun:
    """`result` is that of the second run, in a folder of its own; `difference` says where it differs first, if it
    does.
    """

    result: Result
    told: Told

    @property
    def same(self) -> bool:
        return self.told.difference is None

    @property
    def difference(self) -> str | None:
        return self.told.difference


def rerun(
    path: str | Path, *, storage: str | Path | None = None, journal: str | None = None, progress: bool = True
) -> Rerun:
    """Run the experiment of a run again, with the same seed, and compare. Its folder is beside that of the first, or in
    `storage`.
    """
    path = Path(path)
    before = load(path, journal)
    if before.status in ("running", "interrupted"):
        raise SpecError(f"{path}: the run is {before.status}: only one that is over can be compared; resume it first")
    experiment, trainable, simulation = kept(path, journal)
    if len(experiment.each()) > 1:
        raise SpecError(
            f"{path}: several experiments share this run, so who had which device depends on time: there "
            "is nothing to compare"
        )
    driver = Driver(experiment, trainable, path.parent if storage is None else storage_folder(storage), journal)
    driver.known_scores = False  # those of the first run would be the same, and nothing would be computed
    try:
        after = driver.fit(progress) if simulation is None else driver.simulate(simulation, progress)
    except RunFailed:
        after = load(driver.path, journal)
        if after.status == "running":  # not the trials have failed, but what they ran on
            raise
    return Rerun(after, compare(before.view, after.view))
