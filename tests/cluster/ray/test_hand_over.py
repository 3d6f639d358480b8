"""On Ray: a trial that takes over from another has its state, and its own new configuration."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import elastune as et
from elastune import messages as m
from elastune.record.checkpoints import CheckpointStore
from elastune.run_folder import open_journal

pytestmark = pytest.mark.usefixtures("ray_here")


def train(config: Mapping[str, Any]) -> None:
    """The state says who has trained each of its iterations."""
    trained_by = et.get_checkpoint() or ""
    while True:
        trained_by += et.get_context().trial_id[-1]
        et.report({"loss": config["x"], "trained_by": trained_by}, checkpoint=trained_by)


def test_a_trial_goes_on_with_the_state_of_the_other_and_no_checkpoint_is_left_behind(tmp_path: Path) -> None:
    result = et.Tuner(
        train,
        space={"x": et.uniform(0, 1)},
        metric="loss",
        algorithm=et.PBT(n=4, R=8, perturbation_interval=2),
        devices=2,
        storage=tmp_path,
        name="t",
    ).fit(progress=False)
    with closing(open_journal(result.path, None, must_exist=True)) as journal:
        records = [m.decode_record(body) for body in journal.read()]
    states: dict[tuple[str, int, int], str] = {}
    began: dict[str, m.StartTrial] = {}
    state: dict[str, str] = {}
    heirs = 0
    for record in records:
        for event in record.events:
            if isinstance(event, m.TrialReported):
                start = began[event.trial]
                state[event.trial] += event.trial[-1]
                states[event.trial, start.lineage, event.iteration] = state[event.trial]
                assert event.metrics == {"loss": start.config["x"], "trained_by": state[event.trial]}
        for command in record.commands:
            if isinstance(command, m.StartTrial):
                began[command.trial], saved = command, command.checkpoint
                state[command.trial] = "" if saved is None else states[saved.trial, saved.lineage, saved.iteration]
                heirs += saved is not None and saved.trial != command.trial
    assert heirs == 3, "one in each generation but the first"
    assert result.status == "succeeded" and {len(path) for path in state.values()} == {8}
    assert result.best_params == {"x": result.best_value} and result.best_checkpoint() is not None

    kept = {checkpoint.path for checkpoint in CheckpointStore(str(result.path / "checkpoints")).list()}
    there: set[str] = set()
    for record in records:
        there |= {
            event.checkpoint.path for event in record.events if isinstance(event, m.TrialPaused) and event.checkpoint
        }
        there -= {command.checkpoint.path for command in record.commands if isinstance(command, m.DropCheckpoint)}
    assert kept == there and len(kept) <= 3 * 3, "at most three of each of the three best"
