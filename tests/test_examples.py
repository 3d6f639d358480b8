"""The examples run as they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import elastune as et

EXAMPLES = Path(__file__).parent.parent / "examples"
DIGITS = EXAMPLES / "digits"


def run(example: str, folder: Path) -> str:
    """What it prints."""
    return subprocess.run(
        [sys.executable, DIGITS / example],
        cwd=folder,
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    ).stdout


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_demo_finds_a_good_network_and_says_where_the_pictures_are(tmp_path: Path) -> None:
    said = run("demo.py", tmp_path)
    accuracy = float(said.split("best accuracy ")[-1].split()[0])
    assert accuracy > 0.9
    pictures = [Path(line.split(": ")[1]) for line in said.splitlines() if line.startswith("picture: ")]
    assert len(pictures) == 10 and all((tmp_path / picture).stat().st_size > 1000 for picture in pictures)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_elastic_network_pauses_and_goes_on_by_itself(tmp_path: Path) -> None:
    said = run("elastic.py", tmp_path)
    assert float(said.split("best accuracy ")[-1].split()[0]) > 0.9
    result = et.load(tmp_path / "runs" / "elastic")
    assert result.status == "succeeded" and result.best_checkpoint()["batches"][0]["epoch"] == 9


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_seer_finds_a_good_network_in_a_minute_and_spends_no_more_than_it_has_said(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "elastune"]
    env = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    told = [str(EXAMPLES / "seer" / "experiment.yaml"), "--json"]
    planned = subprocess.run([*command, "plan", *told], cwd=tmp_path, env=env, capture_output=True, check=True)
    forecast = json.loads(planned.stdout)
    assert (forecast["trials"], forecast["finalists"], forecast["limited_by_machines"]) == (8, 2, False)
    subprocess.run([*command, "run", *told], cwd=tmp_path, env=env, timeout=240, check=True)
    result = et.load(tmp_path / "runs" / "seer")
    assert result.status == "succeeded" and result.best_value > 0.9
    assert result.view.at_s <= 60 and result.cost <= forecast["cost_usd"]["at_most"]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("file", "name"), [("job.json", "Ultron-example"), ("own_hpo.json", "Ultron-example-with-its-own-search")]
)
def test_code_and_json_of_ultron_run_as_they_are(file: str, name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "elastune", "run", str(EXAMPLES / "ultron" / file), "--quiet"]
    env = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    subprocess.run(command, cwd=tmp_path, env=env, timeout=240, check=True)
    result = et.load(tmp_path / "runs" / name)
    assert result.status == "succeeded" and len(result.view.trials) == 12 and result.best_value > 0.6
    assert (result.best_checkpoint() / "DONE").exists()
