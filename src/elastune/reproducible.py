"""Runs that give the same numbers again, to the last digit: what they must do without, and whether they did."""

from __future__ import annotations

from typing import NamedTuple

from elastune.algorithm.base import Algorithm
from elastune.errors import SpecError
from elastune.record.projection import RunView, TrialView
from elastune.search import Searcher
from elastune.spec import Width


def refuse_clocks(**given: object) -> None:
    """What makes a run depend on how fast it was: limits, and whoever gives trials devices by what was measured."""
    for name, value in given.items():
        if value is not None:
            said = repr(value) if isinstance(value, str | int | float) else type(value).__name__
            raise SpecError(
                f"reproducible and {name}={said}: what that leads to depends on how fast the run was, and is not the "
                "same again: leave it out"
            )


def goes_by_order(algorithm: Algorithm, searcher: Searcher) -> bool:
    """Whether what is trained depends on which trial is first. With a declared schedule trials meet at barriers, and
    are numbered before they train; but who learns from results may do so in another order.
    """
    return searcher.learns or algorithm.stages() is None


def devices_for_one(machines: int, devices: int | None, width: Width, algorithm: Algorithm) -> int:
    """So many that one trial trains at a time."""
    if devices is None and machines == 1 and width >= 1:
        return int(width)
    if devices is None or machines * devices != width:
        one = f"machines=1 and devices={max(1, int(width))}"
        if width < 1:  # of a device that is shared there is always a place for several
            one += f" and leave out devices_per_trial={width}"
        raise SpecError(
            f"reproducible: what {type(algorithm).__name__} trains with this searcher depends on which trial is first, "
            f"so one may train at a time: give {one}, or take SuccessiveHalving, Hyperband, PBT, KFold or FIFO(n, R) "
            "with the random or the grid searcher, whose trials may be parallel"
        )
    return devices


class Told(NamedTuple):
    """How two runs compare: in how many trials and reports, and where they differ first, if they do."""

    trials: int
    reports: int
    difference: str | None
    hints: tuple[str, ...]


def compare(before: RunView, after: RunView) -> Told:
    """All that was trained and reported. When and where is not asked."""
    difference = _first_difference(before, after)
    reports = sum(len(trial.reports) for trial in before.trials.values())
    return Told(len(before.trials), reports, difference, _hints(before, after) if difference else ())


def _first_difference(before: RunView, after: RunView) -> str | None:
    for trial_id, was in before.trials.items():
        now = after.trials.get(trial_id)
        found = f"trial {trial_id} is missing" if now is None else _between(was, now)
        if found is not None:
            return found
    new = [trial_id for trial_id in after.trials if trial_id not in before.trials]
    return f"trial {new[0]} is new" if new else None


def _between(was: TrialView, now: TrialView) -> str | None:
    if was.config != now.config:
        return f"trial {was.id}: its configuration was {was.config}, and is {now.config}"
    for old, new in zip(was.reports, now.reports, strict=False):
        for name in dict.fromkeys([*old.metrics, *new.metrics]):
            a, b = old.metrics.get(name), new.metrics.get(name)
            if a != b:
                return f"trial {was.id}, iteration {old.iteration}: {name} was {a!r}, and is {b!r}"
    if len(was.reports) != len(now.reports):
        return f"trial {was.id}: it reported {len(was.reports)} times, and now {len(now.reports)} times"
    if was.status != now.status:
        return f"trial {was.id}: it was {was.status}, and is {now.status}"
    return None


def _hints(before: RunView, after: RunView) -> tuple[str, ...]:
    """What may be the reason, as far as the journals tell."""
    hints = []
    if not before.started.experiment.get("reproducible"):
        hints.append("the run was not begun with reproducible: true")
    were, are = before.started.versions, after.started.versions
    changed = [name for name in dict.fromkeys([*were, *are]) if were.get(name) != are.get(name)]
    hints += [f"{name} was {were.get(name, 'not there')}, and is {are.get(name, 'not there')}" for name in changed]
    for told, view in (("first", before), ("second", after)):
        failures = sum(len(trial.failures) + trial.losses for trial in view.trials.values())
        if failures:
            hints.append(f"in the {told} run {failures} tries failed or were lost, and went on from a checkpoint")
    return tuple(hints)
