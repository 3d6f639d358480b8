"""What a run leaves behind: the best configuration, its checkpoint, the table, the bill and the pictures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from elastune.errors import RunFailed, SpecError
from elastune.messages import Config
from elastune.record.checkpoints import CheckpointStore
from elastune.record.projection import RunView, TrialView
from elastune.reporting.tables import best_text

if TYPE_CHECKING:
    import pandas as pd

    from elastune.reporting.utilisation import Utilisation


class Result:
    """Read from the journal only. Of a run that several experiments share, `result["name"]` is that of one of them;
    cost and time are those of the whole run.
    """

    def __init__(self, view: RunView, path: Path) -> None:
        self.view = view
        self.path = path

    @property
    def experiments(self) -> tuple[str, ...]:
        """The names of those that share the run; mostly there is but one."""
        return self.view.experiments

    def __getitem__(self, experiment: str) -> Result:
        return Result(self.view.only(experiment), self.path)

    def __iter__(self) -> Iterator[str]:
        return iter(self.experiments)

    def __len__(self) -> int:
        return len(self.experiments)

    def __repr__(self) -> str:
        return f"Result({str(self.path)!r}): {self.status}; {best_text(self.view)}"

    @property
    def status(self) -> str:
        """succeeded, deadline, budget, interrupted or failed; running while it is."""
        return self.view.status

    @property
    def best_trial(self) -> TrialView:
        if len(self.experiments) > 1:
            raise SpecError(
                f"run {self.path}: {', '.join(self.experiments)} share it, and each has a best of its own: "
                f"result[{self.experiments[0]!r}]"
            )
        if self.view.best is None:
            raise RunFailed(f"run {self.path}: no trial has reported a finite {self.view.started.metric!r} yet")
        return self.view.best

    @property
    def best_params(self) -> Config:
        return self.best_trial.best_config or self.best_trial.config

    @property
    def best_value(self) -> float:
        value = self.best_trial.best_value
        assert value is not None
        return value

    @property
    def cost(self) -> float:
        """Dollars paid for machines."""
        return self.view.cost_usd()

    def best_checkpoint(self) -> Any:
        """The saved state of the best trial: of its best iteration, or of its last if that one was not saved.

        None where the trial has saved none, as in a simulation.
        """
        best = self.best_trial
        if best.to_train:
            raise RunFailed(f"run {self.path}: the best trial, {best.id}, is not what it should be yet: {best.verdict}")
        checkpoint = best.best_checkpoint or best.last_checkpoint
        if checkpoint is None or not checkpoint.sha256:  # a simulation only says that it saves
            return None
        return checkpoint_store(self.path, self.view.started.checkpoints).load(checkpoint)

    def dataframe(self) -> pd.DataFrame:
        """One row per trial."""
        from elastune.reporting import dataframe

        return dataframe(self.view)

    def utilisation(self) -> Utilisation:
        """How busy the devices were: `busy` is the share of the time they were paid for, `windows()` goes by time."""
        from elastune.reporting import utilisation

        return utilisation(self.view)

    def summary(self) -> str:
        """The outcome and the table of the best trials, as text."""
        from elastune.reporting import summary, trials_table

        console = Console(width=120)
        with console.capture() as text:
            console.print(summary(self.view))
            for name in self:
                console.print(trials_table(self[name].view, limit=10))
        return text.get()

    def save_plots(self, folder: str | Path | None = None) -> list[Path]:
        """Draws the run as PNG and SVG, by default into `plots` in the run's folder. Experiments that share the run
        have a folder each in there.
        """
        from elastune.reporting.plots import save_all

        folder = Path(folder) if folder is not None else self.path / "plots"
        if len(self) == 1:
            return save_all(self.view, folder)
        return [picture for name in self for picture in save_all(self[name].view, folder / name)]


def checkpoint_store(path: Path, url: str | None) -> CheckpointStore:
    """In the run's folder, or under a URL, where each run has a folder of the same name."""
    return CheckpointStore(str(path / "checkpoints") if url is None else f"{url}/{path.resolve().name}")
