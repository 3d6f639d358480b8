"""Stages that are declared before the run: many trials train briefly, the best of them longer.

RubberBand's experiment specification (its Figure 6): how many trials each stage has, and for how many more iterations
each of them trains. All trials of a stage meet at a barrier, and the best go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from elastune.algorithm.base import NOTHING, Actions, Algorithm, AlgorithmEvent, Ended
from elastune.errors import SpecError
from elastune.messages import Config
from elastune.spec import Run, Stage, TrialGroup, require_int


class Stages(Algorithm):
    """`stages` has a pair (trials, iterations) for each; more are added with `add_stage`."""

    def __init__(self, stages: Iterable[Sequence[int]] = ()) -> None:
        self._stages: list[Stage] = []
        self._stage = -1
        self.first_place = 0
        """Of its first stage in the schedule that it is a part of."""
        self._configs: dict[str, Config] = {}
        self._pending: set[str] = set()
        self._ended: list[Ended] = []
        if isinstance(stages, str) or not isinstance(stages, Iterable):
            raise SpecError(f"stages={stages!r}: must be pairs of trials and iterations, such as [[32, 1], [10, 3]]")
        for pair in stages:
            if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
                raise SpecError(f"stages: {pair!r}: must be a pair of trials and iterations, such as [32, 1]")
            self.add_stage(*pair)

    def add_stage(self, num_trials: int, iters: int) -> Stages:
        """The best `num_trials` of the stage before train for `iters` more iterations."""
        number, start = len(self._stages), self._stages[-1].until if self._stages else 0
        require_int(f"num_trials of stage {number}", num_trials, 1)
        require_int(f"iters of stage {number}", iters, 1)
        if self._stages and num_trials > self._stages[-1].trials:
            raise SpecError(
                f"num_trials of stage {number}={num_trials}: the stage before has {self._stages[-1].trials}, and only "
                "those can go on: give at most as many"
            )
        self._stages.append(Stage(num_trials, start, start + iters))
        return self

    def stages(self) -> tuple[Stage, ...]:
        if not self._stages:
            raise SpecError("Stages() has no stage: add one with add_stage(num_trials, iters)")
        return tuple(self._stages)

    def more(self, free: int, at_s: float) -> Sequence[TrialGroup]:
        if self._stage >= 0:
            return []
        first = self.stages()[0]
        runs = self.new_runs(first.trials, first.until, final=len(self._stages) == 1, stage=self.first_place)
        return self._begin(runs).groups

    def on(self, event: AlgorithmEvent, at_s: float) -> Actions:
        if not isinstance(event, Ended):
            return NOTHING
        self._pending.discard(event.trial)
        self._ended.append(event)
        return self._promote() if self._all_met() else NOTHING

    @property
    def over(self) -> bool:
        """Whether nobody trains any more, nor will."""
        return self._stage >= 0 and not self._pending

    def _all_met(self) -> bool:
        """Whether nobody is missing at the barrier, and there is a stage behind it."""
        return not self._pending and self._stage < len(self._stages) - 1

    def _begin(self, group: TrialGroup) -> Actions:
        self._stage += 1
        self._configs = {run.trial: run.config for run in group}
        self._pending = set(self._configs)
        self._ended = []
        return Actions(groups=(group,) if group else ())

    def _promote(self) -> Actions:
        """All trials have met at the barrier: the best go on, the others never train again."""
        able, trials = self._able(), self._stages[self._stage + 1].trials
        best, rest = able[:trials], able[trials:]
        return Actions(self._begin(tuple(map(self._next_run, best))).groups, stops=tuple(rest))

    def _able(self) -> list[str]:
        """Who can go on, the best first."""
        able = [(ended.loss, ended.trial) for ended in self._ended if ended.loss is not None and not ended.over]
        return [trial for _, trial in sorted(able)]

    def _next_run(self, trial: str) -> Run:
        """In the next stage."""
        number = self._stage + 1
        until, final = self._stages[number].until, number == len(self._stages) - 1
        return Run(trial, self._configs[trial], until, final, self.first_place + number)
