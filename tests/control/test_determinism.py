"""The same experiment and seed: the same journal, to the byte."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.control.digests import digest, worlds

import elastune

ROOT = Path(__file__).parents[2]
NAMES = list(worlds(seed=0))


@pytest.fixture(scope="module")
def here() -> dict[str, str]:
    return {name: digest(place) for name, place in worlds(seed=1).items()}


@pytest.mark.parametrize("name", NAMES)
def test_two_runs_in_one_process_give_the_same_bytes(name: str, here: dict[str, str]) -> None:
    assert digest(worlds(seed=1)[name]) == here[name]


@pytest.mark.parametrize("name", NAMES)
def test_the_same_world_can_be_run_again(name: str, here: dict[str, str]) -> None:
    place = worlds(seed=1)[name]
    assert digest(place) == digest(place) == here[name]


@pytest.mark.parametrize("hash_seed", ["1", "4242"])
def test_another_process_with_another_hash_seed_gives_the_same_bytes(hash_seed: str, here: dict[str, str]) -> None:
    paths = [str(ROOT), str(Path(elastune.__file__).parents[1])]
    printed = subprocess.run(
        [sys.executable, "-m", "tests.control.digests"],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(paths)},
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    ).stdout
    assert printed.splitlines() == [f"{name}: {value}" for name, value in here.items()]


@pytest.mark.parametrize("name", NAMES)
def test_another_seed_gives_another_journal(name: str, here: dict[str, str]) -> None:
    assert digest(worlds(seed=2)[name]) != here[name]
