"""Elastic grid search (a baseline of SEER's authors): half of the time many trials train on few devices each, then the
best of them alone on many.
"""

from __future__ import annotations

from elastune.algorithm.timed import Bracket, TimedStage, TimedStages, Window, largest
from elastune.allocate.base import Allocator
from elastune.errors import Infeasible, SpecError
from elastune.place import machines_needed
from elastune.spec import Terms, require_int


class ElasticGrid(TimedStages):
    """As many trials as the budget has room for, with `p_min` devices each until half-time; the best gets `p_max`, or
    as many as there are.
    """

    def __init__(self, p_min: int = 1, p_max: int = 4) -> None:
        super().__init__()
        require_int("p_min", p_min, 1)
        require_int("p_max", p_max, 1)
        if p_min > p_max:
            raise SpecError(f"p_min={p_min}, p_max={p_max}: trials have p_min to p_max devices: give p_min <= p_max")
        self.p_min, self.p_max = self._narrow, self._wide = p_min, p_max

    def prepare(self, terms: Terms) -> Allocator:
        window = Window.of(terms, "ElasticGrid")
        self._narrow = window.narrowest(self.p_min, self.p_max)
        self._wide = window.usable(min(self.p_max, window.most_devices))
        most = int(min(window.device_s / window.seconds * 2, terms.machines * terms.devices) / self.p_min) + 1
        trials = largest(1, most, lambda trials: window.affords(self._stages(window, int(trials))))
        if trials is None:
            needed = window.cost([(stage.until_s, stage.machines) for stage in self._stages(window, 1)])
            raise Infeasible(
                f"the budget of {window.say(window.budget)} is too small for one trial on {self.p_min} and then "
                f"{self.p_max} devices until the deadline: it takes {window.say(needed)}. Give a larger budget, a "
                "smaller p_max, or an earlier deadline"
            )
        self.plan = self._stages(window, int(trials))
        return self.allocator(terms.devices)

    def _stages(self, window: Window, trials: int) -> tuple[TimedStage, ...]:
        middle_s = window.begin_s + window.seconds / 2
        devices, narrow, wide = window.terms.devices, self._narrow, self._wide
        exploring = TimedStage(
            window.begin_s, middle_s, (Bracket(trials, narrow, keep=1),), machines_needed({narrow: trials}, devices)
        )
        training = TimedStage(middle_s, window.end_s, (Bracket(1, wide),), machines_needed({wide: 1}, devices))
        return exploring, training
