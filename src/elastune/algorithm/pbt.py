"""Population based training (Jaderberg et al. 2017): hyperparameters change while trials train.

All members of the population train for an interval and meet at a barrier: a generation. The worst of them exploit: each
takes over checkpoint and configuration of one of the best, chosen at random (the paper's truncation selection). Then
they explore: what they took over is changed a little. So what is found is a schedule of configurations, not one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import msgspec

from elastune.algorithm.base import Actions, TrialSource
from elastune.algorithm.explore import explore
from elastune.algorithm.stages import Stages
from elastune.errors import SpecError
from elastune.spec import Run, require_int, require_number

HALF = 0.5


class PBT(Stages):
    """A population of `n` trials that train `R` iterations each; after every `perturbation_interval` of them the worst
    `quantile_fraction` take over from the best.

    A hyperparameter is drawn anew with `resample_probability`; otherwise numbers are multiplied by one of the
    `perturbation_factors`, and of a choice a neighbour is taken. Who fails, or returns early, leaves the population.
    """

    def __init__(
        self,
        n: int,
        R: int,
        perturbation_interval: int,
        quantile_fraction: float = 0.25,
        resample_probability: float = 0.25,
        perturbation_factors: Sequence[float] = (0.8, 1.2),
    ) -> None:
        require_int("n", n, 2)
        require_int("R", R, 2)
        require_int("perturbation_interval", perturbation_interval, 1)
        if perturbation_interval >= R:
            raise SpecError(
                f"perturbation_interval={perturbation_interval}, R={R}: trials are compared after every interval, and "
                "would never be before their end: give an interval below R"
            )
        require_number("quantile_fraction", quantile_fraction)
        if quantile_fraction > HALF:
            raise SpecError(
                f"quantile_fraction={quantile_fraction!r}: must be at most {HALF}, or some were both good and bad"
            )
        require_number("resample_probability", resample_probability, zero=True)
        if resample_probability > 1:
            raise SpecError(f"resample_probability={resample_probability!r}: must be at most 1")
        if isinstance(perturbation_factors, str) or not isinstance(perturbation_factors, Sequence):
            raise SpecError(f"perturbation_factors={perturbation_factors!r}: must be numbers, such as [0.8, 1.2]")
        if not perturbation_factors:
            raise SpecError("perturbation_factors=[]: must have at least one number, such as [0.8, 1.2]")
        for factor in perturbation_factors:
            require_number("perturbation_factors", factor)
        ends = [*range(perturbation_interval, R, perturbation_interval), R]
        super().__init__((n, end - start) for start, end in zip([0, *ends], ends, strict=False))
        self.n, self.R, self.perturbation_interval = n, R, perturbation_interval
        self.quantile_fraction, self.resample_probability = quantile_fraction, resample_probability
        self.perturbation_factors = tuple(perturbation_factors)

    def setup(self, source: TrialSource) -> None:
        super().setup(source)
        self._rng = random.Random(f"{source.seed} PBT")

    def _promote(self) -> Actions:
        """A generation has met: the worst begin the next one as one of the best, changed a little."""
        able = self._able()
        some = min(math.ceil(self.quantile_fraction * len(able)), len(able) // 2)
        best, rest, worst = able[:some], able[some : len(able) - some], able[len(able) - some :]
        runs = [self._next_run(trial) for trial in best + rest]
        return self._begin((*runs, *(self._exploit(trial, self._rng.choice(best)) for trial in worst)))

    def _exploit(self, trial: str, donor: str) -> Run:
        taken, factors = self._configs[donor], self.perturbation_factors
        config = explore(self._source.space, taken, self._rng, self.resample_probability, factors)
        return msgspec.structs.replace(self._next_run(trial), config=config, start_from=donor)
