from __future__ import annotations

import gzip
import json
import math
import os
import pickle
import random
import statistics
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import elastune as et
from elastune.cluster.workload import Stragglers, Synthetic, Table, table_from_file
from elastune.cluster.workload_lcbench import SPACE, LCBench
from elastune.errors import SpecError

CONFIGS = [{"lr": 0.1, "kind": "adam", "inner": {"x": 3}}, {"lr": 0.01, "kind": "sgd", "inner": {"x": 9}}]


def values(workload: Synthetic | Table, config: dict[str, Any], metric: str, count: int) -> list[Any]:
    curve = workload.curve(config)
    return [None if (metrics := curve(k)) is None else metrics[metric] for k in range(1, count + 1)]


# ---------------------------------------------------------------------------------------------------------- synthetic


def test_a_synthetic_curve_depends_on_seed_and_configuration_only() -> None:
    one, two, other = (Synthetic("loss", "min", seed=seed) for seed in (0, 0, 1))
    assert values(one, CONFIGS[0], "loss", 20) == values(two, CONFIGS[0], "loss", 20)
    assert values(one, CONFIGS[0], "loss", 20) == values(pickle.loads(pickle.dumps(one)), CONFIGS[0], "loss", 20)
    assert values(one, CONFIGS[0], "loss", 20) != values(one, CONFIGS[1], "loss", 20)
    assert values(one, CONFIGS[0], "loss", 20) != values(other, CONFIGS[0], "loss", 20)


def test_a_synthetic_curve_gives_the_same_in_any_order() -> None:
    curve = Synthetic("loss", "min").curve(CONFIGS[0])
    backwards = [curve(k) for k in range(10, 0, -1)]
    assert backwards[::-1] == [curve(k) for k in range(1, 11)]


def test_without_noise_it_falls_to_its_level_and_rises_where_more_is_better() -> None:
    falling = Synthetic("loss", "min", noise=0.0)
    curve = values(falling, CONFIGS[0], "loss", 5000)
    assert curve == sorted(curve, reverse=True)
    assert curve[-1] == pytest.approx(falling.level(CONFIGS[0]), abs=0.01)
    rising = values(Synthetic("accuracy", "max", noise=0.0), CONFIGS[0], "accuracy", 50)
    assert rising == sorted(rising) and 0 < rising[0] < rising[-1] < 1


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.dictionaries(st.text(max_size=3), st.floats(-1e9, 1e9) | st.integers(-9, 9) | st.text(max_size=3) | st.none())
)
def test_every_configuration_has_a_level_between_0_and_1(config: dict[str, Any]) -> None:
    assert 0.0 <= Synthetic("loss", "min").level(config) <= 1.0


@pytest.mark.parametrize("arguments", [{"step_s": 0.0}, {"noise": -0.1}, {"decay": 0.0}, {"step_s": math.inf}])
def test_a_synthetic_workload_that_cannot_be_is_an_error(arguments: dict[str, Any]) -> None:
    ((name, value),) = arguments.items()
    with pytest.raises(SpecError, match=f"{name}={value}"):
        Synthetic("loss", "min", **arguments)


# -------------------------------------------------------------------------------------------------------------- tables


def table() -> Table:
    configs = [{"lr": 0.0, "units": 10}, {"lr": 1.0, "units": 10}, {"lr": 0.0, "units": 1000}]
    return Table("loss", configs, [[3, 2, 1], [6, 5], [9]], [[1, 1, 2], [3, 3], [7]])


def test_the_nearest_recorded_configuration_answers() -> None:
    assert values(table(), {"lr": 0.1, "units": 100}, "loss", 4) == [3, 2, 1, None]
    assert values(table(), {"lr": 0.9, "units": 12}, "loss", 3) == [6, 5, None]
    assert values(table(), {"lr": 0.2, "units": 900}, "loss", 2) == [9, None]


def test_steps_take_as_long_as_they_took() -> None:
    assert [table().step_s({"lr": 0.0, "units": 10}, k) for k in (1, 2, 3, 4)] == [1, 1, 2, 2]


def test_a_table_is_deterministic_and_can_be_pickled() -> None:
    again: Table = pickle.loads(pickle.dumps(table()))
    for k in range(20):
        config = {"lr": k / 20, "units": 50 * k}
        assert again.row(config) == table().row(config)


def test_a_configuration_that_the_table_does_not_cover_is_an_error() -> None:
    for config in ({"lr": 0.1}, {"lr": 0.1, "units": "many"}, {"lr": 0.1, "units": None}):
        with pytest.raises(SpecError, match="the table needs numbers for lr, units") as error:
            table().curve(config)
        assert str(config) in str(error.value)


ROWS = [
    {"config": {"lr": 0.1}, "learning_curve": [0.5, 0.4], "time_steps": [2.0, 5.0]},
    {"config": {"lr": 0.2}, "learning_curve": [0.7], "time_steps": [1.0]},
]


@pytest.mark.parametrize("name", ["table.jsonl", "table.jsonl.gz"])
def test_a_table_is_read_from_a_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    text = "\n".join(json.dumps(row) for row in ROWS) + "\n\n"
    path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    read = table_from_file(path, "loss")
    assert values(read, {"lr": 0.1}, "loss", 3) == [0.5, 0.4, None]
    assert [read.step_s({"lr": 0.1}, k) for k in (1, 2)] == [2.0, 3.0]
    assert read.ranges == {"lr": (0.1, 0.2)}


def row(**changes: Any) -> str:
    return json.dumps({**ROWS[0], **changes})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("not json", ": is not JSON: Expecting value at character 1"),
        ('{"config": {"lr": 1}', ": is not JSON: Expecting ',' delimiter at character 21"),
        ("[" * 100_000, ": maximum recursion depth"),
        ("[1, 2]", ": [1, 2] must be an object"),
        ('{"config": {"lr": 1}}', ": learning_curve is missing"),
        ('{"config": {"lr": 1}, "learning_curve": [1]}', ": time_steps is missing"),
        (row(learning_curve=["good", 1]), ": learning_curve: 'good' must be a number"),
        (row(learning_curve=[]), ": learning_curve=[] must be a list of numbers, and not empty"),
        (row(learning_curve=[0.1] * 3), ": learning_curve has 3 values and time_steps 2: must have as many"),
        (row(time_steps=5), ": time_steps=5 must be a list of numbers"),
        (row(time_steps=[2.0, 1.0]), ": time_steps go from 2 to 1 in iteration 2: they are seconds since the start"),
        (row(time_steps=[2.0, math.nan]), ": time_steps go from 2 to nan in iteration 2"),
        (row(time_steps=[2.0, 2.0]), ": time_steps go from 2 to 2 in iteration 2"),
        (row(time_steps=[0, 0]), ": time_steps go from the start to 0 in iteration 1"),
        (row(config=[1]), ": config=[1] must be an object of numbers"),
        (row(config={}), ": config={} must be an object of numbers, and not empty"),
        (row(config={"kind": "adam"}), ": config.kind: 'adam' must be a number"),
        (row(config={"lr": math.inf}), ": config.lr=inf must be finite"),
        (row(config={"lr": 10**400}), ": int too large"),
        (row(config={"momentum": 0.9}), ": config has momentum, and that of the first line lr"),
    ],
)
def test_a_bad_line_is_an_error_that_names_file_line_and_what_a_line_must_have(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "table.jsonl"
    path.write_text(f"{row()}\n\n{text}\n")
    with pytest.raises(SpecError) as error:
        table_from_file(path, "loss")
    assert str(error.value).startswith(f"table file {path}, line 3{said}")
    assert str(error.value).endswith(
        '; a line is such as {"config": {"lr": 0.1}, "learning_curve": [0.9, 0.7], "time_steps": [10.0, 20.5]}'
    )


def test_a_table_file_without_curves_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "table.jsonl").write_text("\n \n")
    with pytest.raises(SpecError, match=r"table file .*table\.jsonl: has no curves; a line is such as"):
        table_from_file(tmp_path / "table.jsonl", "loss")


@pytest.mark.parametrize("start", [b"", b"\0"])
def test_a_file_that_is_no_text_is_not_shown(tmp_path: Path, start: bytes) -> None:
    path = tmp_path / "table.jsonl"
    path.write_bytes(start + gzip.compress(row().encode()) + b"\xff" * 10_000)
    with pytest.raises(SpecError, match=r"line 1: is not text; the name of a gzipped file must end in \.gz") as error:
        table_from_file(path, "loss")
    assert len(str(error.value)) < 300 + len(str(path))


def test_a_recorded_iteration_without_time_is_an_error_in_python_too() -> None:
    with pytest.raises(SpecError, match=r"seconds=\[1\.0, 0\.0\] of configuration {'lr': 0\.5}: iteration 2 must take"):
        Table("loss", [{"lr": 0.1}, {"lr": 0.5}], [[3.0], [2.0, 1.0]], [[1.0], [1.0, 0.0]])


def test_a_trial_fails_where_a_recorded_curve_is_not_a_number(tmp_path: Path) -> None:
    path = tmp_path / "table.jsonl"
    path.write_text(f"{row(config={'lr': 0.9}, learning_curve=[0.5, math.nan])}\n{row()}\n")
    space, workload = {"lr": et.grid_search([0.1, 0.9])}, table_from_file(path, "loss")
    algorithm = et.FIFO(n=2, R=2)
    tuner = et.Tuner(None, space=space, metric="loss", algorithm=algorithm, devices=1, name="nan", storage=tmp_path)
    trials = tuner.simulate(et.Simulation(workload)).view.trials.values()
    assert {trial.config["lr"]: trial.status for trial in trials} == {0.1: "completed", 0.9: "failed"}


def test_a_parameter_that_the_curves_do_not_know_is_refused_and_a_constant_is_not(tmp_path: Path) -> None:
    def simulate(**space: Any) -> None:
        tuner = et.Tuner(None, space=space, metric="loss", algorithm=et.FIFO(n=2, R=2), devices=1, storage=tmp_path)
        tuner.simulate(et.Simulation(table()))

    known = {"lr": et.uniform(0, 1), "units": et.randint(10, 1000)}
    simulate(**known, epochs=50)
    with pytest.raises(
        SpecError, match=r"^space\.unit: .* no such parameter; did you mean 'units'\? they know: lr, units"
    ):
        simulate(**known, unit=et.uniform(0, 1))
    with pytest.raises(SpecError, match=r"^space\.opt\.beta: "):
        simulate(**known, opt={"beta": et.uniform(0, 1)})


def test_a_table_file_that_is_not_there_or_not_zipped_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot be read: No such file"):
        table_from_file(tmp_path / "none.jsonl", "loss")
    (tmp_path / "plain.jsonl.gz").write_text(row())
    with pytest.raises(SpecError, match="cannot be read"):
        table_from_file(tmp_path / "plain.jsonl.gz", "loss")
    (tmp_path / "half.jsonl.gz").write_bytes(gzip.compress(row().encode())[:-12])
    with pytest.raises(SpecError, match="cannot be read"):
        table_from_file(tmp_path / "half.jsonl.gz", "loss")
    with pytest.raises(SpecError, match="cannot be read"):
        table_from_file(tmp_path, "loss")


# ---------------------------------------------------------------------------------------------------------- stragglers


@pytest.mark.parametrize("sigma", [0.0, 0.1, 0.5])
def test_stragglers_take_as_long_as_the_others_on_average(sigma: float) -> None:
    stragglers = Stragglers(sigma, seed=3)
    factors = [stragglers.factor(stragglers.offset(f"t{k}", 1), i) for k in range(100) for i in range(1, 101)]
    assert all(factor > 0 for factor in factors)
    assert statistics.mean(factors) == pytest.approx(1.0, abs=0.03)
    spread = math.sqrt(math.exp(sigma**2) - 1)
    assert statistics.pstdev(factors) == pytest.approx(spread, rel=0.1, abs=1e-12)


def test_stragglers_depend_on_seed_trial_and_attempt_only() -> None:
    one, two, other = Stragglers(0.3, 0), Stragglers(0.3, 0), Stragglers(0.3, 1)
    assert one.offset("a", 1) == two.offset("a", 1)
    assert one.offset("run-00003", 1) == two.offset("of-another-name-00003", 1) != one.offset("run-00004", 1)
    assert len({one.offset("a", 1), one.offset("a", 2), one.offset("b", 1), other.offset("a", 1)}) == 4


def test_stragglers_with_a_spread_below_zero_are_an_error() -> None:
    with pytest.raises(SpecError, match=r"sigma=-0\.1"):
        Stragglers(-0.1)


# ------------------------------------------------------------------------------------------------------------- LCBench


def lcbench_folder(tmp_path: Path, encoding: str = '{"OpenML_task_id": {"#na#": 0, "3945": 1, "7593": 2}}') -> Path:
    (tmp_path / "encoding.json").write_text(encoding)
    return tmp_path


def test_lcbench_names_an_unknown_metric(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"metric='val_acuracy'.* did you mean 'val_accuracy'"):
        LCBench(lcbench_folder(tmp_path), "3945", "val_acuracy")


def test_lcbench_names_an_unknown_task_and_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"task='3946'.* allowed: 3945, 7593"):
        LCBench(lcbench_folder(tmp_path), "3946")


@pytest.mark.parametrize("encoding", ["", "{}", "[]", "no json"])
def test_lcbench_names_a_folder_that_cannot_be_read(tmp_path: Path, encoding: str) -> None:
    with pytest.raises(SpecError, match=r"encoding\.json cannot be read") as error:
        LCBench(lcbench_folder(tmp_path, encoding), "3945")
    assert str(tmp_path) in str(error.value)
    with pytest.raises(SpecError, match=r"encoding\.json cannot be read"):
        LCBench(tmp_path / "nowhere", "3945")


def test_lcbench_says_so_when_its_model_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"model\.onnx"):
        LCBench(lcbench_folder(tmp_path), "3945")


def test_lcbench_names_the_hyperparameters_that_are_missing(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"")
    workload = LCBench(lcbench_folder(tmp_path), "3945")
    with pytest.raises(SpecError, match="missing: max_units, max_dropout"):
        workload.curve(dict.fromkeys(["batch_size", "learning_rate", "momentum", "weight_decay", "num_layers"], 1.0))


DATA = Path(os.environ.get("ELASTUNE_DATA", "../shared/data"))


@pytest.mark.skipif(not DATA.is_dir(), reason="the published curves are not here: set ELASTUNE_DATA to their folder")
def test_published_curves_can_be_followed() -> None:
    klein = table_from_file(DATA / "lc_cifar10_cnn_klein" / "curves.jsonl.gz", "error")
    config = {name: low for name, (low, _) in klein.ranges.items()}
    assert 0 < float((klein.curve(config)(40) or {})["error"]) < 1
    assert klein.curve(config)(41) is None and klein.step_s(config, 1) > 0
    pytest.importorskip("onnxruntime")
    task = LCBench(DATA / "lc_lcbench_surrogate", "167168", "val_accuracy")
    network = SPACE.sample(random.Random(0))
    first, last = (float((task.curve(network)(epoch) or {})["val_accuracy"]) for epoch in (1, 52))
    assert 0 < first <= 100 and 0 < last <= 100 and task.step_s(network, 2) > 0
