"""Measure a training job on the machines it has: how fast its steps are at every width, and what beginning costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from elastune.algorithm import FIFO
from elastune.allocate.stepwise import Stepwise, widths_on
from elastune.errors import SpecError
from elastune.experiment import Experiment
from elastune.forecast import as_text
from elastune.profile.cloud import Cloud
from elastune.profile.file import save_profile
from elastune.profile.job import JobProfile
from elastune.profile.latency import Latency
from elastune.profile.measure import Measured
from elastune.spec import SMALLEST_SHARE, Limits, Width, require_int

MOST_TRIALS = 1_000_000
"""Trials that end while they are measured are followed by new ones."""


def profiling_experiment(
    experiment: Experiment, seconds: float, widths: Sequence[int] | None, packed: int = 1
) -> Experiment:
    """The same training on the same machines, with a time for each width instead of an algorithm."""
    machines, devices = experiment.machines, experiment.devices
    possible = widths_on(machines, devices)
    for width in widths or ():
        require_int("width", width, 1)
        if width > machines * devices or (width > devices and width % devices):
            raise SpecError(f"width {width}: {machines} machines x {devices} devices offer {list(possible)} and less")
    if widths and 1 not in widths:
        raise SpecError(f"widths={list(widths)}: width 1 must be among them: all others are compared with it")
    require_int("packed", packed, 1)
    if packed > SMALLEST_SHARE.denominator:
        raise SpecError(f"packed={packed}: at most {SMALLEST_SHARE.denominator} trials share a device")
    parts: list[Width] = [Fraction(1, trials) for trials in range(packed, 1, -1)]
    return replace(
        experiment,
        algorithm=FIFO(MOST_TRIALS),
        allocator=Stepwise(machines, devices, seconds, [*parts, *sorted(set(widths or possible))]),
        settings=replace(experiment.settings, name=f"{experiment.settings.name}-profile", limits=Limits()),
        profile=None,
        cloud=None,
    )


@dataclass(frozen=True, slots=True)
class Profiled:
    """What was measured, and what fits it."""

    profile: JobProfile
    cloud: Cloud
    measured: Measured

    @classmethod
    def of(cls, measured: Measured, experiment: Experiment, packed: int = 1) -> Profiled:
        price = experiment.settings.price_usd_per_device_hour * experiment.devices
        cloud = measured.cloud(experiment.provider, experiment.devices, price)
        profile = measured.profile()
        if len(profile.packed) + 1 < packed:
            raise SpecError(
                f"packed={packed}: no trial has reported twice while {len(profile.packed) + 2} were on its device; "
                "measure for longer"
            )
        return cls(profile, cloud, measured)

    def save(self, path: str | Path) -> None:
        steps = ", ".join(f"{len(seconds)} steps at width {width}" for width, seconds in self._seconds())
        save_profile(Path(path), self.profile, self.cloud, measured=steps)

    def save_plots(self, folder: str | Path) -> list[Path]:
        """The steps and the speed-up by width, as PNG and SVG."""
        from elastune.reporting.plan_plots import save_profile_plot

        return save_profile_plot(Path(folder), dict(self._seconds()), self.profile.with_parts.speedups)

    def to_dict(self) -> dict[str, Any]:
        return {"widths": self._rows(), "latencies": {name: _plain(latency) for name, latency in self._latencies()}}

    def tables(self) -> RenderableType:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("width", "steps", "seconds per step", "spread", "speed-up"):
            table.add_column(name, justify="right")
        for row in self._rows():
            spread = f"{row['std_s'] / row['mean_s']:.0%}"
            cells = (str(row["width"]), str(row["steps"]), f"{row['mean_s']:.4g}", spread, f"{row['speedup']:.2f}")
            table.add_row(*cells)
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="bold")
        for name, latency in self._latencies():
            spread = f" +- {latency.std_s:.3g} s, {latency.kind}" if latency.varies else ""
            grid.add_row(name, f"{latency.mean_s:.3g} s{spread}")
        return Group(table, "", grid)

    def __str__(self) -> str:
        return as_text(self.tables())

    def _rows(self) -> list[dict[str, Any]]:
        rows = []
        for width, seconds in self._seconds():
            mean_s = sum(seconds) / len(seconds)
            std_s = (sum((each - mean_s) ** 2 for each in seconds) / len(seconds)) ** 0.5
            speedup = self.profile.with_parts(float(width))
            row = {"width": width if width >= 1 else str(width), "steps": len(seconds)}
            rows.append({**row, "mean_s": mean_s, "std_s": std_s, "speedup": speedup})
        return rows

    def _seconds(self) -> list[tuple[Width, list[float]]]:
        """The steps by width, the narrowest first."""
        packed = [(Fraction(1, trials), self.measured.packed[trials]) for trials in sorted(self.measured.packed)]
        return [*reversed(packed), *sorted(self.measured.steps.items())]

    def _latencies(self) -> list[tuple[str, Latency]]:
        return [
            ("a step on one device", self.profile.step),
            ("to begin a trial", self.profile.start),
            ("in a new process, more", self.profile.cold_start),
            ("to be given a machine", self.cloud.request),
            ("until it is ready", self.cloud.boot),
        ]


def _plain(latency: Latency) -> dict[str, Any]:
    return {"kind": latency.kind, "mean_s": latency.mean_s, "std_s": latency.std_s}
