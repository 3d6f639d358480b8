"""A trial takes over from another: what it goes on from, what counts, and which checkpoints are kept for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.control.scripts import Script, drops, notes, paused, ready, reported, saved, starts
from tests.control.test_checkpoints import assert_checkpoints_are_there_when_they_are_needed
from tests.control.test_recovery import faults
from tests.worlds import Session, assert_sound, winner, world

from elastune import messages as m
from elastune.algorithm import PBT, Actions, Algorithm, Ended, Run, TrialGroup
from elastune.algorithm.base import NOTHING, AlgorithmEvent
from elastune.cluster.simulated import Fault
from elastune.control.controller import Step
from elastune.errors import SpecError
from elastune.search import Searcher
from elastune.search.base import Result
from elastune.spec import Retention

DONOR, HEIR = "t-00000", "t-00001"


class Exchange(Algorithm):
    """Two trials train until iteration 4; then the second goes on from the first, changed, until 8."""

    def __init__(self, start_from: str | None = DONOR, donor_until: int = 4) -> None:
        self.start_from, self.donor_until = start_from, donor_until
        self.runs: list[Run] = []
        self.ended: dict[str, Ended] = {}

    def more(self, free: int, at_s: float) -> Sequence[TrialGroup]:
        if self.runs:
            return []
        self.runs = [Run(*new, until=4) for _ in range(2) if (new := self.new_trial()) is not None]
        self.runs[0] = Run(self.runs[0].trial, self.runs[0].config, until=self.donor_until)
        return [tuple(self.runs)]

    def on(self, event: AlgorithmEvent, at_s: float) -> Actions:
        if not isinstance(event, Ended):
            return NOTHING
        self.ended[event.trial] = event
        if len(self.ended) < 2 or self.runs[0].until == 8:
            return NOTHING
        donor, heir = self.runs
        self.runs = [
            Run(donor.trial, donor.config, 8, True),
            Run(heir.trial, {**heir.config, "lr": 0.05}, 8, True, start_from=self.start_from),
        ]
        return Actions((tuple(self.runs),))


def at_the_barrier(algorithm: Algorithm | None = None, **arguments: Any) -> tuple[Script, Step]:
    """Both have saved at iterations 2 and 4."""
    script = Script(algorithm or Exchange(), devices=2, **arguments)
    script.at(0.0, ready("n0", 2))
    for trial, loss in ((DONOR, 0.1), (HEIR, 0.9)):
        for iteration in (1, 2, 3, 4):
            script.at(float(iteration), reported(trial, iteration, loss))
            if iteration == 2:
                script.at(2.0, m.TrialCheckpointed(trial, 1, saved(trial, 2)))
    script.at(4.0, paused(DONOR, 4))
    return script, script.at(4.0, paused(HEIR, 4))


def start_of(step: Step, trial: str) -> m.StartTrial:
    (found,) = (c for c in step.commands if isinstance(c, m.StartTrial) and c.trial == trial)
    return found


def test_it_goes_on_from_the_newest_checkpoint_of_the_other_with_its_new_configuration() -> None:
    script, step = at_the_barrier()
    donor, heir = start_of(step, DONOR), start_of(step, HEIR)
    assert (donor.lineage, donor.checkpoint, donor.iteration) == (0, saved(DONOR, 4), 4)
    assert (heir.lineage, heir.checkpoint, heir.iteration) == (1, saved(DONOR, 4), 4)
    assert heir.config["lr"] == 0.05 and heir.config == script.config(HEIR)


def test_iterations_count_from_where_the_other_was() -> None:
    """The donor is behind: what the heir has reported before counts for another lineage."""
    script = Script(Exchange(donor_until=2), devices=2)
    script.at(0.0, ready("n0", 2))
    for iteration in (1, 2):
        script.at(float(iteration), reported(DONOR, iteration, 0.1))
    script.at(2.0, paused(DONOR, 2))
    for iteration in (1, 2, 3, 4):
        script.at(4.0, reported(HEIR, iteration, 0.9))
    step = script.at(4.0, paused(HEIR, 4))
    assert start_of(step, HEIR).iteration == 2 and script.controller.trials[HEIR].iteration == 2
    step = script.at(5.0, reported(HEIR, 3, 0.05, attempt=2))
    assert step.decisions == (), "it is not hidden as trained again"
    assert script.controller.trials[HEIR].best_loss == 0.05


def test_a_checkpoint_is_kept_as_long_as_somebody_needs_it() -> None:
    script, step = at_the_barrier(retention=Retention(keep_last=1, keep_best=1))
    assert drops(step) == [f"{HEIR}/2-1"], "of its own it still has the best"
    later = [
        script.at(5.0, reported(DONOR, 5, 0.05, 2), m.TrialCheckpointed(DONOR, 2, saved(DONOR, 5, 2))),
        script.at(6.0, reported(DONOR, 6, 0.04, 2), m.TrialCheckpointed(DONOR, 2, saved(DONOR, 6, 2))),
    ]
    assert [drops(each) for each in later] == [[], [f"{DONOR}/5-2"]], "the other still needs that of iteration 4"
    assert drops(script.at(6.5, m.TrialLost(HEIR, 2, "gone"))) == []
    assert starts(script.at(8.0)) == [(HEIR, 3, 4)]
    of_its_own = m.Checkpoint(HEIR, 1, 5, f"{HEIR}/1-5-3", "", 0)
    step = script.at(9.0, reported(HEIR, 5, 0.06, 3), m.TrialCheckpointed(HEIR, 3, of_its_own))
    assert drops(step) == [f"{HEIR}/4-1", f"{DONOR}/4-1"], "nobody goes on from it any more"


def test_when_it_cannot_be_read_the_trial_goes_on_from_its_own_with_the_new_configuration() -> None:
    script, _ = at_the_barrier()
    step = script.at(5.0, m.CheckpointDamaged(HEIR, 2, saved(DONOR, 4), "it is torn"))
    again = start_of(step, HEIR)
    assert (again.lineage, again.checkpoint, again.config["lr"]) == (1, saved(HEIR, 4), 0.05)
    assert drops(step) == [], "the donor may find out itself, and drops it when it is done with it"
    assert notes(step) == [f"trial {HEIR}: it is torn; the checkpoint before it is used"]
    step = script.at(6.0, m.TrialLost(DONOR, 2, "gone", fault=False))
    step = script.at(7.0, m.CheckpointDamaged(DONOR, 3, saved(DONOR, 4), "it is torn"))
    assert drops(step) == [f"{DONOR}/4-1"] and start_of(step, DONOR).checkpoint == saved(DONOR, 2)


def test_without_a_checkpoint_it_keeps_its_state_and_takes_the_configuration_only() -> None:
    script = Script(Exchange(), devices=2)
    script.at(0.0, ready("n0", 2))
    for trial, keep in ((DONOR, False), (HEIR, True)):
        for iteration in (1, 2, 3, 4):
            script.at(4.0, reported(trial, iteration, 0.5))
        step = script.at(4.0, paused(trial, 4, keep=keep))
    heir = start_of(step, HEIR)
    assert (heir.lineage, heir.checkpoint, heir.config["lr"]) == (1, saved(HEIR, 4), 0.05)
    assert [note for note in notes(step) if "which has none: it takes over the configuration only" in note]


@pytest.mark.parametrize("start_from", [None, HEIR])
def test_a_trial_may_change_its_configuration_and_keep_its_state(start_from: str | None) -> None:
    """It is a new lineage: a worker that still has the old configuration in memory must not go on with it."""
    _, step = at_the_barrier(Exchange(start_from))
    heir = start_of(step, HEIR)
    assert (heir.lineage, heir.checkpoint, heir.config["lr"]) == (1, saved(HEIR, 4), 0.05)
    assert drops(step) == []


def test_to_start_from_a_trial_that_there_is_not_is_an_error() -> None:
    with pytest.raises(SpecError, match=r"trial t-00001: Run.start_from='t-00009': there is no such trial"):
        at_the_barrier(Exchange("t-00009"))


class Listening(Searcher):
    def __init__(self) -> None:
        self.results: list[tuple[int, int]] = []

    def suggest(self) -> m.Config:
        return {"lr": 0.01, "momentum": 0.5}

    def observe(self, result: Result) -> None:
        self.results.append((result.number, result.iteration))


def test_the_searcher_is_not_told_what_a_configuration_of_others_is_worth() -> None:
    session = world(Exchange(), searcher=Listening(), devices=2).run()
    searcher = session.controller._runs.parties[0].source.searcher
    assert isinstance(searcher, Listening)
    assert sorted(searcher.results) == [(0, 4), (0, 8), (1, 4)]


# --------------------------------------------------------------------------------------------------------------- PBT


def left_over(session: Session) -> tuple[set[str], set[str]]:
    """The checkpoints that are still there, and those that trials still need."""
    there: set[str] = set()
    for record in session.records:
        for event in record.events:
            if (saved := getattr(event, "checkpoint", None)) is not None and not isinstance(event, m.CheckpointDamaged):
                there.add(saved.path)
        for command in record.commands:
            if isinstance(command, m.DropCheckpoint):
                there.remove(command.checkpoint.path)
    return there, {kept.path for trial in session.controller.trials.values() for kept in trial.checkpoints}


def test_the_best_configuration_is_the_one_of_the_best_report() -> None:
    session = world(PBT(8, 24, 3), devices=4, seed=3).run()
    began = {(c.trial, c.lineage): c.config for c in session.commands if isinstance(c, m.StartTrial)}
    best = session.view.best
    assert best is not None and best.best_lineage is not None
    assert max(lineage for _, lineage in began) > 1, "some have taken over more than once"
    assert best.best_config == began[best.id, best.best_lineage]
    for trial in session.view.trials.values():
        assert trial.config == began[trial.id, trial.lineage], "that of the last lineage"


def test_it_finds_more_than_the_same_trials_alone() -> None:
    def mean_best(generations: bool) -> float:
        bests = []
        for seed in range(8):
            session = world(PBT(8, 40, 4 if generations else 39), devices=8, seed=seed).run()
            assert session.view.best is not None and session.view.best.best_value is not None
            bests.append(session.view.best.best_value)
        return sum(bests) / len(bests)

    assert mean_best(True) < 0.8 * mean_best(False)


def test_when_it_ends_only_the_best_trials_have_checkpoints() -> None:
    session = world(
        PBT(8, 24, 3), devices=3, retention=Retention(keep_last=2, keep_best=2), checkpoint_every_s=1.0
    ).run()
    there, needed = left_over(session)
    assert there == needed
    assert len([trial for trial in session.controller.trials.values() if trial.checkpoints]) <= 2


@settings(max_examples=60)
@given(
    seed=st.integers(0, 999),
    machines=st.integers(1, 3),
    every_s=st.sampled_from([1.0, 3.0, 60.0]),
    keep=st.tuples(st.integers(1, 3), st.integers(0, 3)),
    harm=faults,
    crashes=st.lists(st.integers(0, 40), max_size=2),
)
def test_whatever_goes_wrong_nothing_is_lost_or_left_behind(
    seed: int, machines: int, every_s: float, keep: tuple[int, int], harm: list[Fault], crashes: list[int]
) -> None:
    algorithm = PBT(6, 11, 2, quantile_fraction=0.34)
    calm = world(algorithm, seed=seed, devices=3).run()
    place = world(
        algorithm,
        seed=seed,
        machines=machines,
        devices=2,
        faults=harm,
        max_retries=20,
        checkpoint_every_s=every_s,
        retention=Retention(*keep),
    )
    session = place.start()
    for turns in crashes:
        if not session.turns(turns).controller.done:
            session = place.resume(session.journal)
    session.run()
    assert_sound(session)
    assert_checkpoints_are_there_when_they_are_needed(session)
    assert winner(session.view) == winner(calm.view)
    assert [trial.iteration for trial in session.view.trials.values()] == [11] * 6
    there, needed = left_over(session)
    assert there == needed
