"""The command line as a user meets it: what it prints, its exit codes, and how it answers bad input."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from elastune.allocate import Fluid
from elastune.cli import main
from elastune.config_file import load_experiment
from elastune.profile import JobProfile, Scaling, constant, save_profile
from elastune.yaml_file import read_yaml

GOOD = """
name: exp
trainable: train.py:train
space:
  lr: {loguniform: [1e-4, 1e-1]}
  layers: {choice: [2, 3, 4]}
metric: loss
mode: min
algorithm: {ASHA: {n: 12, r: 1, R: 9, eta: 3}}
deadline: 1h
budget: $5
price: $0.50
seed: 3
cluster: {machines: 2, devices: 2}
simulation:
  workload: {synthetic: {step: 30s, noise: 0.02}}
  boot: 60s
  stragglers: 0.1
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "exp.yaml").write_text(GOOD)
    return tmp_path


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, env={"COLUMNS": "200"})


def refused(*arguments: str) -> str:
    """The message of a call that is refused: exit code 2, one error, no traceback."""
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit), "a traceback"
    assert "Traceback" not in result.output
    return " ".join(result.stderr.split())


def test_simulate_then_look_at_it_in_every_way(folder: Path) -> None:
    assert call("simulate", "exp.yaml").exit_code == 0
    status = json.loads(call("status", "runs/exp", "--json").stdout)
    assert status["status"] == "succeeded"
    trials = json.loads(call("trials", "runs/exp", "--json").stdout)
    assert len(trials) == 12
    best = json.loads(call("best", "runs/exp", "--json").stdout)
    assert best["value"] == min(trial["best_value"] for trial in trials)
    assert set(best["config"]) == {"lr", "layers"}
    assert f"{best['value']:g}" in call("best", "runs/exp").stdout
    report = call("report", "runs/exp")
    assert report.exit_code == 0
    assert (folder / "runs/exp/plots/timeline.png").stat().st_size > 1000
    assert (folder / "runs/exp/plots/utilisation.png").stat().st_size > 1000
    assert "succeeded" in report.stdout
    said = json.loads(call("report", "runs/exp", "--json").stdout)
    assert f"busy {said['devices']['busy']:.0%} of the time they were paid for" in report.stdout
    assert said["utilisation"] == said["devices"]["busy"]


def test_the_same_file_simulated_twice_gives_the_same_journal(folder: Path) -> None:
    call("simulate", "exp.yaml")
    call("simulate", "exp.yaml")
    first, second = (
        sqlite3.connect(folder / "runs" / run / "journal.db")
        .execute("select body from records order by seq")
        .fetchall()
        for run in ("exp", "exp-2")
    )
    assert len(first) > 10
    assert first == second


def test_a_finished_run_is_not_run_again(folder: Path) -> None:
    call("simulate", "exp.yaml")
    before = (folder / "runs/exp/journal.db").read_bytes()
    again = call("resume", "runs/exp")
    assert again.exit_code == 0 and "succeeded" in again.stdout
    assert (folder / "runs/exp/journal.db").read_bytes() == before


BAD = [
    ("metric: loss", "metrik: loss", "unknown field 'metrik'; did you mean 'metric'?"),
    ("metric: loss\n", "", "metric is missing"),
    ("metric: loss", "metric: 5", "metric=5: must be the name of a number"),
    ("mode: min", "mode: lowest", "mode='lowest': must be 'min' (less is better) or 'max'"),
    ("deadline: 1h", "deadline: -5m", "deadline='-5m': must be a positive duration"),
    ("deadline: 1h", "deadline: soon", "deadline='soon': must be a positive duration"),
    ("budget: $5", "budget: lots", "budget='lots': must be a positive amount"),
    ("price: $0.50\n", "", "budget='$5' needs a price"),
    ("seed: 3", "seed: -1", "seed=-1: must be a whole number of at least 0"),
    ("seed: 3", "seed: yes", "seed=True: must be a whole number"),
    ("devices: 2", "devices: 0", "devices=0: must be a whole number of at least 1"),
    (
        "devices: 2",
        "devices: 2, devices_per_trial: 3",
        "devices_per_trial=3: a trial is on one machine or on whole ones",
    ),
    ("devices: 2", "devices: 2, devices_per_trial: 1/0", "devices_per_trial='1/0': must be a whole number of devices"),
    ("seed: 3", "allocator: fair", "allocator='fair': allowed: Fluid"),
    ("seed: 3", "allocator: {Fluid: {profile: none.yaml}}", "none.yaml"),
    ("seed: 3", "allocator: {Fluid: {profile: 5}}", "profile=5: must be a file that 'elastune profile' wrote"),
    ("seed: 3", "allocator: {Fluid: {profile: p.yaml, scaling: {1: 1}}}", "give one of them"),
    (
        "seed: 3",
        "allocator: {Fluid: {profile: 3}}",
        "allocator Fluid: profile=3: must be a file that 'elastune profile'",
    ),
    ("seed: 3", "allocator: {Fluid: {profile: ''}}", "allocator Fluid: profile='': must be a file that"),
    ("seed: 3", "allocator: {Fluid: {widest: 0}}", "allocator Fluid: widest=0: must be a whole number"),
    ("seed: 3", "devices: 8", "devices and cluster.devices are the same: give one of them"),
    ("seed: 3", "machines: 2", "machines and cluster.machines are the same: give one of them"),
    ("seed: 3", "journal: foo", "journal='foo': must be a database such as 'postgresql://user@host/database'"),
    ("seed: 3", "journal: 3", "journal=3: must be a database"),
    ("seed: 3", "journal: ''", "journal='': must be a database"),
    ("seed: 3", "journal: sqlite:///x", "journal='sqlite://...': must be a database"),
    ("seed: 3", "checkpoint_every: -3", "checkpoint_every=-3: must be a duration of at least 0"),
    ("price: $0.50", "price: -5", "price=-5: must be an amount of at least 0 US dollars"),
    ("price: $0.50", "price: false", "price=False: must be an amount of at least 0 US dollars"),
    ("boot: 60s", "start: -1", "simulation.start=-1: must be a duration of at least 0"),
    ("boot: 60s", "midway: sometimes", "midway='sometimes': must be true or false"),
    ("boot: 60s", "lifetime: 0", "simulation.lifetime=0: must be a positive duration"),
    ("name: exp", "name: " + "x" * 300, "has 300 characters: must have at most 100"),
    ("{choice: [2, 3, 4]}", "{uniform: [0, 1], log: true}", "a domain is a mapping with one name"),
    ("metric: loss", "metric: null", "metric is missing"),
    ("machines: 2", "machins: 2", "unknown field 'machins'; did you mean 'machines'?"),
    ("ASHA:", "AHSA:", "did you mean 'ASHA'?"),
    ("R: 9", "R: nine", "R='nine': must be a whole number"),
    ("r: 1, R: 9", "r: 10, R: 9", "r must not be above R"),
    ("n: 12, ", "n: 12, etta: 3, ", "unknown field 'etta'; did you mean 'eta'?"),
    ("n: 12, ", "", "n is missing"),
    ("{loguniform: [1e-4, 1e-1]}", "{logunifrom: [1e-4, 1e-1]}", "did you mean 'loguniform'"),
    ("{loguniform: [1e-4, 1e-1]}", "{loguniform: [0, 1e-1]}", "loguniform"),
    ("{loguniform: [1e-4, 1e-1]}", "{uniform: [2, 1]}", "uniform"),
    ("  lr: {loguniform: [1e-4, 1e-1]}\n  layers: {choice: [2, 3, 4]}\n", "  {}\n", "space is empty"),
    ("step: 30s", "stepp: 30s", "unknown field 'stepp'; did you mean 'step'?"),
    ("synthetic:", "sinthetic:", "did you mean 'synthetic'?"),
    ("boot: 60s", "boot: -1s", "boot='-1s': must be a duration of at least 0"),
    ("stragglers: 0.1", "stragglers: -1", "stragglers=-1: must be a number"),
    ("name: exp", "name: a/b", "name='a/b': must be letters"),
    ("seed: 3", "searcher: tppe", "searcher='tppe': did you mean 'tpe'?"),
    ("seed: 3", "retention: {keep_last: 0}", "keep_last=0: must be a whole number of at least 1"),
    ("seed: 3", "max_retries: -1", "max_retries=-1"),
    ("seed: 3", "seed: 3\nmetric: acc", "'metric' is given twice"),
    ("seed: 3", "cluster: {<<: {machines: 1}, devices: 1, devices: 2}", "'devices' is given twice"),
    ("seed: 3", "storage: 5", "storage=5: must be a folder"),
    ("seed: 3", "storage: s3://bucket", "storage='s3://bucket': must be a folder"),
    ("seed: 3", "checkpoints: carrier-pigeon://x", "checkpoints='carrier-pigeon://x' cannot be used"),
    ("name: exp", "name: []", "name=[]: must be letters"),
    ("cluster: {machines: 2, devices: 2}", "cluster: 0", "cluster: must be a mapping, is 0"),
    ("machines: 2", "machines: 1000000000", "must be at most 1000000"),
    ("stragglers: 0.1", "scaling: abc", "scaling='abc': must map widths to speed-ups"),
    ("stragglers: 0.1", "faults: [{at: 1m, kind: looose, target: n0}]", "did you mean 'lose'?"),
    ("stragglers: 0.1", "faults: [{at: soon, kind: lose, target: n0}]", "at='soon': must be a duration of at least 0"),
    ("ASHA: {n: 12, r: 1, R: 9, eta: 3}}\ndeadline: 1h\nbudget: $5", "FIFO: {n: 3}}", "would never end"),
    (GOOD, "- a list", "must be a mapping"),
    (GOOD, "a: [unclosed", "is not YAML"),
    ("name: exp", "name: 2024-13-45", "'2024-13-45' cannot be read (month must be in 1..12): put quotes around a text"),
    ("seed: 3", "seed: 0x_", "'0x_' cannot be read"),
    *(("seed: 3", f"seed: !!{kind} x", "'x' cannot be read") for kind in ("int", "float", "bool", "timestamp")),
    ("seed: 3", "seed: !!int ''", "'' cannot be read"),
    (GOOD, "a: " + 2000 * "[", "is nested too deeply"),
    (GOOD, "", "must be a mapping"),
]


@pytest.mark.parametrize(("good", "bad", "message"), BAD, ids=[message[:40] for _, _, message in BAD])
def test_a_bad_file_is_refused_and_nothing_is_written(folder: Path, good: str, bad: str, message: str) -> None:
    assert good in GOOD
    (folder / "exp.yaml").write_text(GOOD.replace(good, bad))
    assert message in refused("simulate", "exp.yaml")
    assert not (folder / "runs").exists()


def test_a_key_goes_before_the_same_one_of_what_is_merged_in(folder: Path) -> None:
    text = "a: {one: &one {x: 1, y: 1}, two: &two {<<: *one, y: 2}, <<: *two, x: 3}\nb: {<<: [*two, *one], z: 4}\n"
    (folder / "merged.yaml").write_text(text)
    read = read_yaml(folder / "merged.yaml", "anything")
    assert read["a"] == {"one": {"x": 1, "y": 1}, "two": {"x": 1, "y": 2}, "x": 3, "y": 2}
    assert read["b"] == {"x": 1, "y": 2, "z": 4}


BAD_TRAINABLES = [
    ("train.py:train", "there is no file"),
    *((text, "must be 'file.py:function'") for text in ("train.py", "':'", "'train.py:'", "':train'")),
    ("no_such_module:train", "ModuleNotFoundError"),
    ("broken.py:train", "ZeroDivisionError"),
    ("script.py:train", "script.py calls sys.exit() when it is loaded: put what a script does below if __name__"),
    ("fine.py:tran", "did you mean 'train'?"),
    ("fine.py:two", "must take one argument"),
    ("fine.py:number", "must be a function of one argument"),
]


@pytest.mark.parametrize(("trainable", "message"), BAD_TRAINABLES)
def test_a_trainable_that_cannot_be_used_is_refused(folder: Path, trainable: str, message: str) -> None:
    (folder / "broken.py").write_text("1 / 0")
    (folder / "script.py").write_text("import sys\ndef train(config): ...\nsys.exit()\n")
    (folder / "fine.py").write_text("number = 5\ndef train(config): ...\ndef two(config, other): ...\n")
    (folder / "exp.yaml").write_text(GOOD.replace("train.py:train", trainable))
    assert message in refused("run", "exp.yaml")
    assert not (folder / "runs").exists()


def test_a_missing_file_is_refused(folder: Path) -> None:
    assert "nothing.yaml: cannot be read: No such file" in refused("simulate", "nothing.yaml")


def test_a_run_that_is_not_there_is_refused(folder: Path) -> None:
    for command in ("status", "trials", "best", "report", "resume"):
        assert "there is no such run" in refused(command, "runs/nothing")


def test_storage_that_cannot_be_written_is_refused(folder: Path) -> None:
    (folder / "file").write_text("in the way")
    assert "storage='file' cannot be written" in refused("simulate", "exp.yaml", "--storage", "file")


@pytest.mark.parametrize("command", ["status", "resume"])
def test_a_folder_without_a_journal_is_refused_with_a_word_on_where_it_may_be(folder: Path, command: str) -> None:
    call("simulate", "exp.yaml")
    (folder / "runs/exp/journal.db").unlink()
    message = refused(command, "runs/exp")
    assert "there is no journal at runs/exp/journal.db" in message and "--journal" in message
    assert "journal='foo': must be a database" in refused(command, "runs/exp", "--journal", "foo")


def test_null_stands_for_the_default_in_every_section(folder: Path) -> None:
    nulls = GOOD.replace("seed: 3\n", "").replace("stragglers: 0.1", "stragglers: null")
    nulls = nulls.replace("noise: 0.02", "noise: null, seed: null").replace("eta: 3", "eta: null")
    nulls = nulls.replace("name: exp", "name: null").replace("devices: 2", "devices: 2, devices_per_trial: null")
    for name in ("seed", "searcher", "storage", "journal", "checkpoint_every", "retention", "max_retries", "planning"):
        nulls += f"{name}: null\n"
    nulls += "workers: {leak_limit: null, fresh_process: null}\nmachines: null\n"
    (folder / "exp.yaml").write_text(nulls)
    plain = GOOD.replace("seed: 3\n", "").replace("  stragglers: 0.1\n", "").replace(", noise: 0.02", "")
    (folder / "other.yaml").write_text(plain.replace("name: exp", "name: other"))
    for file in ("exp.yaml", "other.yaml"):
        result = call("simulate", file)
        assert result.exit_code == 0, result.output
    one, two = (json.loads(call("best", f"runs/{run}", "--json").stdout) for run in ("exp", "other"))
    assert (one["value"], one["config"]) == (two["value"], two["config"])


def test_null_is_kept_where_an_argument_has_no_default(folder: Path) -> None:
    (folder / "exp.yaml").write_text(GOOD.replace("n: 12", "n: null"))
    assert json.loads(call("simulate", "exp.yaml", "--json").stdout)["status"] == "deadline"


def test_the_log_of_a_trial_whose_process_died_ends_with_why(folder: Path) -> None:
    (folder / "exp.yaml").write_text(
        GOOD.replace("  boot: 60s", "  faults: [{at: 10s, kind: kill, target: exp-00000}]") + "max_retries: 0\n"
    )
    assert call("simulate", "exp.yaml").exit_code == 0
    log = folder / "runs" / "exp" / "logs" / "exp-00000.log"
    why = "trial exp-00000 has failed: the worker process died\n"
    for printed in ("", "epoch 0\n"):
        for follow in ((), ("--follow",)):
            told = call("logs", "runs/exp", "exp-00000", *follow)
            assert (told.stdout, told.stderr) == (printed, why)
        log.parent.mkdir(exist_ok=True)
        log.write_text("epoch 0\n")
    log.with_name("exp-00001.log").write_text("epoch 0\n")
    assert call("logs", "runs/exp", "exp-00001").output == "epoch 0\n"


def test_a_quiet_simulation_says_only_the_result(folder: Path) -> None:
    result = call("simulate", "exp.yaml", "--quiet")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "succeeded" in result.stdout


def test_a_torn_last_record_is_dropped_with_a_warning_and_the_run_goes_on(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    call("simulate", "exp.yaml")
    whole = json.loads(call("best", "runs/exp", "--json").stdout)
    with closing(sqlite3.connect(folder / "runs/exp/journal.db")) as database, database:
        database.execute("delete from records where seq > 20")
        database.execute("update records set body = substr(body, 1, 30) where seq = 20")
    result = call("resume", "runs/exp")
    assert result.exit_code == 0, result.output
    assert "the last record (20) of run 'exp'" in caplog.text and "was left out" in caplog.text
    assert json.loads(call("best", "runs/exp", "--json").stdout) == whole


def test_damage_in_the_middle_of_the_journal_is_an_error(folder: Path) -> None:
    call("simulate", "exp.yaml")
    with closing(sqlite3.connect(folder / "runs/exp/journal.db")) as database, database:
        database.execute("update records set body = substr(body, 1, 30) where seq = 20")
    for command in ("status", "resume"):
        assert "record 20" in refused(command, "runs/exp")


def test_a_journal_that_is_no_database_is_an_error(folder: Path) -> None:
    call("simulate", "exp.yaml")
    (folder / "runs/exp/journal.db").write_bytes(b"hello" * 1000)
    assert "journal.db" in refused("status", "runs/exp")


def test_the_journal_may_live_in_postgresql(folder: Path, postgres_server: str) -> None:
    (folder / "exp.yaml").write_text(GOOD + f"journal: {postgres_server}\n")
    assert call("simulate", "exp.yaml", "--storage", "with-pg").exit_code == 0
    assert not (folder / "with-pg/exp/journal.db").exists()
    status = call("status", "with-pg/exp", "--journal", postgres_server, "--json")
    assert json.loads(status.stdout)["status"] == "succeeded"
    assert "say where with --journal" in refused("status", "with-pg/exp")
    assert call("resume", "with-pg/exp", "--journal", postgres_server).exit_code == 0


def test_fluid_knows_from_a_profile_what_several_devices_bring_and_what_packing_costs(folder: Path) -> None:
    profile = JobProfile(constant(30.0), Scaling({1: 1, 2: 1.9, 4: 3.5}), packed=(0.7,))
    save_profile(folder / "p.yaml", profile)
    text = GOOD.replace("devices: 2}", "devices: 2, allocator: {Fluid: {profile: p.yaml}}}")
    (folder / "fluid.yaml").write_text(text)
    allocator = load_experiment(folder / "fluid.yaml", with_trainable=False)[0].experiment.allocator
    assert isinstance(allocator, Fluid) and allocator.scaling == profile.with_parts
    assert call("simulate", "fluid.yaml").exit_code == 0


def test_fluid_needs_no_profile_while_it_is_yet_to_be_measured(folder: Path) -> None:
    text = GOOD.replace("devices: 2}", "devices: 2, allocator: {Fluid: {profile: p.yaml}}}")
    (folder / "fluid.yaml").write_text(text)
    assert "p.yaml: cannot be read" in refused("simulate", "fluid.yaml")
    tuner, _ = load_experiment(folder / "fluid.yaml", with_trainable=False, planned=False)
    assert not isinstance(tuner.experiment.allocator, Fluid)
