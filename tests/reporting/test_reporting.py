from __future__ import annotations

import builtins
import importlib
import io
import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType

from elastune.errors import ElastuneError
from elastune.messages import (
    AnyCommand,
    AnyDecision,
    AnyEvent,
    NodeLost,
    NodeReady,
    Note,
    Record,
    ReleaseNode,
    RunEnded,
    RunStarted,
    Slot,
    StartTrial,
    StatusChanged,
    Suggested,
    TrialFailed,
    TrialLost,
    TrialPaused,
    TrialReported,
)
from elastune.record.projection import RunView
from elastune.reporting import (
    Progress,
    dataframe,
    devices_table,
    plots,
    reports_frame,
    summary,
    summary_dict,
    trial_dicts,
    trials_table,
)
from elastune.reporting.progress import progress_lines


class FakeRun:
    """A first-come-first-served run of trials with falling losses, as records; made up, but like a real one."""

    def __init__(self, trials: int, machines: int, devices: int, iterations: int, lost_node: str | None = None) -> None:
        self.random = random.Random(0)
        self.waiting = [f"t{i}" for i in range(trials)]
        self.configs: dict[str, dict[str, Any]] = {
            trial: {"lr": 10 ** self.random.uniform(-4, -1), "model": {"layers": 2 + i % 3}, "seed": 0}
            for i, trial in enumerate(self.waiting)
        }
        self.iterations, self.lost_node = iterations, lost_node
        self.free = [Slot(f"node-{m}", d) for m in range(machines) for d in range(devices)]
        self.at: dict[str, int] = dict.fromkeys(self.waiting, 0)
        self.attempt: dict[str, int] = dict.fromkeys(self.waiting, 0)
        self.queue: list[tuple[float, str, Slot]] = []
        ready = [NodeReady(f"node-{m}", devices, 20.0, devices * 1.0) for m in range(machines)]
        suggested = tuple(Suggested(t, c) for t, c in self.configs.items())
        self.records = [Record(0.0, (started(),), suggested, ())]
        self.records.append(Record(60.0, tuple(ready), (), tuple(self.start_all(60.0))))

    def start_all(self, at_s: float) -> list[AnyCommand]:
        commands: list[AnyCommand] = []
        while self.free and self.waiting:
            trial, slot = self.waiting.pop(0), self.free.pop(0)
            self.attempt[trial] += 1
            commands.append(
                StartTrial(
                    id=len(self.records) * 1000 + len(commands),
                    trial=trial,
                    attempt=self.attempt[trial],
                    lineage=0,
                    config=self.configs[trial],
                    iteration=self.at[trial],
                    checkpoint=None,
                    until_iteration=self.at[trial] + self.iterations,
                    final=False,
                    slots=(slot,),
                )
            )
            self.queue.append((at_s + self.step_s(), trial, slot))
        return commands

    def step_s(self) -> float:
        return round(self.random.uniform(20, 40), 3)

    def loss(self, trial: str) -> float:
        lr = self.configs[trial]["lr"]
        floor = 0.05 + abs(lr - 0.01) * 3
        return float(floor + 2.2 / (1 + self.at[trial]) ** (0.6 + lr) + self.random.uniform(0, 0.05))

    def run(self) -> list[Record]:
        while self.queue:
            self.queue.sort()
            if self.lost_node and self.queue[0][0] > 260:
                self.lose(self.lost_node, 260.0)
                self.lost_node = None
            else:
                self.step(*self.queue.pop(0))
        end = self.records[-1].at_s + 5.0
        nodes = dict.fromkeys(e.node for r in self.records for e in r.events if isinstance(e, NodeReady))
        done: tuple[AnyDecision, ...] = (
            Note("warning", "the loss of t1 stands still"),
            RunEnded("succeeded", "all done"),
        )
        self.records.append(Record(end, (), done, tuple(ReleaseNode(9_000_000 + i, n) for i, n in enumerate(nodes))))
        return self.records

    def step(self, at_s: float, trial: str, slot: Slot) -> None:
        self.at[trial] += 1
        attempt = self.attempt[trial]
        if self.random.random() < 0.003:
            self.free.append(slot)
            events: list[AnyEvent] = [TrialFailed(trial, attempt, "ValueError: no", "...", final=True)]
            decisions: tuple[AnyDecision, ...] = (StatusChanged(trial, "failed", "ValueError: no"),)
        else:
            events = [TrialReported(trial, attempt, self.at[trial], {"loss": self.loss(trial), "epoch_s": 30.0})]
            decisions = ()
            if self.at[trial] % self.iterations == 0:
                events.append(TrialPaused(trial, attempt, self.at[trial], None))
                self.free.append(slot)
                goes_on = self.at[trial] < 9 * self.iterations and self.random.random() < 0.4
                decisions = (StatusChanged(trial, "paused" if goes_on else "stopped"),)
                self.waiting += [trial] * goes_on
            else:
                self.queue.append((at_s + self.step_s(), trial, slot))
        self.records.append(Record(at_s, tuple(events), decisions, tuple(self.start_all(at_s))))

    def lose(self, node: str, at_s: float) -> None:
        gone = [entry for entry in self.queue if entry[2].node == node]
        self.queue = [entry for entry in self.queue if entry[2].node != node]
        self.free = [slot for slot in self.free if slot.node != node]
        self.waiting += [trial for _, trial, _ in gone]
        lost = [TrialLost(t, self.attempt[t], "machine gone") for _, t, _ in gone]
        self.records.append(Record(at_s, (NodeLost(node, "revoked"), *lost), (), ()))


def started(**changes: Any) -> RunStarted:
    asked: dict[str, Any] = {
        "name": "demo", "metric": "loss", "mode": "min", "seed": 0, "deadline_s": 1200.0, "budget_usd": 20.0,
        "price_usd_per_device_hour": 1.0, "started_unix_s": 0.0, "experiment": {}, "versions": {},
    }  # fmt: skip
    return RunStarted(**(asked | changes))


@pytest.fixture(scope="module")
def small() -> RunView:
    return RunView.of(FakeRun(trials=5, machines=1, devices=2, iterations=4).run())


@pytest.fixture(scope="module")
def large() -> RunView:
    return RunView.of(FakeRun(trials=300, machines=8, devices=8, iterations=3, lost_node="node-5").run())


@pytest.fixture
def empty() -> RunView:
    return RunView.of([Record(0.0, (started(),), (), ())])


def shown(renderable: RenderableType) -> str:
    console = Console(width=200, file=io.StringIO())
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def test_a_budget_of_time_on_devices_is_shown_where_a_budget_is_shown() -> None:
    begun = started(budget_usd=None, budget_device_s=4800.0, deadline_s=None)
    view = RunView.of([Record(0.0, (begun,), (), ()), Record(90.0, (NodeReady("n", 4, 30.0, 3600.0),), (), ())])
    assert view.paid_device_s() == 240.0
    assert "4 device-minutes of 80 device-minutes ($60.00)" in shown(summary(view))
    assert progress_lines(view)[1] == "time: 1m 30s; cost: 4 device-minutes of 80 device-minutes ($60.00)"
    said = summary_dict(view)
    assert (said["paid_device_s"], said["budget_device_s"], said["budget_usd"]) == (240.0, 4800.0, None)


def test_the_summary_names_status_best_configuration_trials_cost_and_notes(small: RunView) -> None:
    text = shown(summary(small))
    best = small.best
    assert best is not None and best.best_value is not None and best.best_config is not None
    assert "succeeded: all done" in text
    assert f"loss {best.best_value:.5g} by {best.id} at iteration {best.best_iteration}" in text
    assert f"lr={best.best_config['lr']:.5g}" in text and "model.layers=" in text
    assert "5 stopped" in text
    assert "of $20" in text
    assert "warning: the loss of t1 stands still" in text


def test_the_trials_table_is_sorted_best_first_and_hides_parameters_that_do_not_vary(small: RunView) -> None:
    text = shown(trials_table(small, limit=3))
    values = sorted(t.best_value for t in small.trials.values() if t.best_value is not None)
    positions = [text.index(f"{value:.5g}") for value in values[:3]]
    assert positions == sorted(positions)
    assert f"{values[3]:.5g}" not in text and "3 of 5 trials shown" in text
    assert "model.layers" in text and "seed" not in text


def test_long_values_are_cut() -> None:
    configs = [{"prompt": "x" * 100}, {"prompt": "y" * 100}]
    view = RunView.of([Record(0.0, (started(),), tuple(Suggested(f"t{i}", c) for i, c in enumerate(configs)), ())])
    assert "x" * 23 + "…" in shown(trials_table(view))


def test_a_text_that_looks_like_markup_is_shown_as_it_is() -> None:
    configs = [{"layer[0]": "[red]"}, {"layer[0]": "[/b]"}]
    view = RunView.of([Record(0.0, (started(),), tuple(Suggested(f"t{i}", c) for i, c in enumerate(configs)), ())])
    text = shown(trials_table(view))
    assert "[red]" in text and "[/b]" in text and "layer[0]" in text


def test_the_dicts_are_valid_json_with_the_same_numbers(large: RunView) -> None:
    said = json.loads(json.dumps([summary_dict(large), trial_dicts(large)], allow_nan=False))
    assert said[0]["cost_usd"] == pytest.approx(large.cost_usd())
    assert said[0]["best"]["value"] == large.best_so_far[-1].value == said[1][0]["best_value"]
    assert sum(said[0]["trials"].values()) == len(said[1]) == 300


def test_a_run_without_a_trial_can_be_shown_in_every_way(empty: RunView, tmp_path: Path) -> None:
    assert "no loss reported yet" in shown(summary(empty))
    shown(trials_table(empty))
    assert json.loads(json.dumps(summary_dict(empty), allow_nan=False))["best"] is None and trial_dicts(empty) == []
    assert list(dataframe(empty).columns)[:2] == ["trial", "status"] and reports_frame(empty).empty
    assert all(path.stat().st_size > 0 for path in plots.save_all(empty, tmp_path))


def test_progress_on_a_terminal_redraws_at_most_a_few_times_a_second(small: RunView) -> None:
    now_s = 0.0
    console = Console(file=io.StringIO(), force_terminal=True, width=200, get_time=lambda: now_s)
    drawn = 0
    with Progress(console) as progress:
        show = progress._show

        def counted(view: RunView) -> None:
            nonlocal drawn
            drawn += 1
            show(view)

        progress._show = counted  # type: ignore[method-assign]
        for step in range(1000):
            now_s = step * 0.001
            progress.update(small)
    assert 5 <= drawn <= 6
    assert isinstance(console.file, io.StringIO) and "5 stopped" in console.file.getvalue()


def test_progress_into_a_file_prints_a_line_every_ten_seconds_of_the_run() -> None:
    view = RunView.of([Record(0.0, (started(),), (), ())])
    out = io.StringIO()
    with Progress(Console(file=out, width=40)) as progress:
        for at_s in range(1, 36):
            view.feed(Record(float(at_s), (), (), ()))
            progress.update(view)
    lines = out.getvalue().splitlines()
    assert len(lines) == 5
    assert all("best: no loss reported yet" in line and "cost: " in line and "left" in line for line in lines)


def test_frames_have_a_row_per_trial_and_per_report(small: RunView) -> None:
    frame, reports = dataframe(small), reports_frame(small)
    assert list(frame["trial"]) == list(small.trials)
    assert list(frame["config/model.layers"]) == [2, 3, 4, 2, 3]
    assert frame["best_value"].min() == small.best_so_far[-1].value
    assert len(reports) == sum(len(t.reports) for t in small.trials.values())
    assert reports["loss"].min() == small.best_so_far[-1].value


def test_a_missing_library_is_named_with_the_extra_that_brings_it(
    small: RunView, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] in ("pandas", "matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    for make_frame in (dataframe, reports_frame):
        with pytest.raises(ElastuneError, match=r"pandas.*elastune\[report\]"):
            make_frame(small)
    monkeypatch.delitem(sys.modules, "elastune.reporting.plots")
    for module in ("plots", "plan_plots", "timed_plots", "comparison_plots", "utilisation_plots"):
        monkeypatch.delitem(sys.modules, f"elastune.reporting.{module}", raising=False)
        with pytest.raises(ElastuneError, match=r"matplotlib.*elastune\[report\]"):
            importlib.import_module(f"elastune.reporting.{module}")


def test_plots_are_written_and_the_same_run_gives_the_same_bytes(small: RunView, tmp_path: Path) -> None:
    once, again = plots.save_all(small, tmp_path / "a"), plots.save_all(small, tmp_path / "b")
    assert [path.name for path in once] == [path.name for path in again]
    assert {path.suffix for path in once} == {".png", ".svg"} and len(once) == 10
    for one, two in zip(once, again, strict=True):
        assert one.stat().st_size > 5000 and one.read_bytes() == two.read_bytes()


def test_plots_of_many_trials_state_their_message(large: RunView) -> None:
    best = large.best_so_far[-1]
    assert plots.timeline(large).axes[0].get_title(loc="left").startswith("300 trials on 64 devices: ")
    for against in ("time", "cost"):
        assert f"Best loss {best.value:.5g}" in plots.best_so_far(large, against).axes[0].get_title(loc="left")
    title = plots.learning_curves(large).axes[0].get_title(loc="left")
    assert f"{best.trial} is the best of 300 trials: loss {best.value:.5g}" in title


def packed() -> RunView:
    """Two trials on one device, then one alone on it; one on two devices."""
    alone, wide = Slot("n", 0), (Slot("n", 1), Slot("n", 2))

    def start(trial: str, *slots: Slot, share: float = 1.0) -> StartTrial:
        return StartTrial(1, trial, 1, 0, {"x": 1}, 0, None, 1, True, slots, share)

    halves = start("a", Slot("n", 0), share=0.5), start("b", Slot("n", 0, 1), share=0.5)
    return RunView.of(
        [
            Record(0.0, (started(), NodeReady("n", 3, 0.0, 1.0)), (), (*halves, start("wide", *wide))),
            Record(5.0, (TrialPaused("a", 1, 1, None),), (), ()),
            Record(10.0, (TrialPaused("b", 1, 1, None),), (), (start("alone", alone),)),
            Record(20.0, (), (), ()),
        ]
    )


def test_a_device_that_trials_share_is_not_busier_than_one() -> None:
    view = packed()
    assert (view.busy_device_s(), view.utilisation()) == (60.0, 1.0)
    assert "100%" in shown(devices_table(view))


def test_trials_that_share_a_device_are_drawn_one_above_the_other_in_its_row() -> None:
    view = packed()
    bars = plots._bars(view, plots._device_rows(view))
    assert {bar.busy.trial: (bar.top, bar.rows) for bar in bars} == {
        "a": (-0.5, 0.5), "b": (0.0, 0.5), "alone": (-0.5, 1), "wide": (0.5, 2),
    }  # fmt: skip
    assert "4 trials on 3 devices: 100% busy" in plots.timeline(view).axes[0].get_title(loc="left")


def test_a_lone_report_and_a_run_of_the_first_second_can_be_drawn(tmp_path: Path) -> None:
    start = StartTrial(1, "a", 1, 0, {"x": 1}, 0, None, 1, True, (Slot("n", 0),))
    view = RunView.of(
        [
            Record(
                0.0, (started(deadline_s=None, budget_usd=None, mode="max"), NodeReady("n", 1, 0.0, 0.0)), (), (start,)
            ),
            Record(0.5, (TrialReported("a", 1, 1, {"loss": 0.0}),), (), ()),
        ]
    )
    assert all(path.stat().st_size > 0 for path in plots.save_all(view, tmp_path))
