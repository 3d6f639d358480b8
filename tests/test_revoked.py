"""Real runs on machines that a market takes away: nothing is lost, with notice or without, nor when the driver dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.chaos import left_behind
from tests.experiments import EXPERIMENT, elastune, records_in, wait_for, write_experiment
from tests.test_adoption import folder, journal, keepers, kill, nothing_is_left, say, start
from tests.test_crashes import outcome, run_to_the_end

import elastune as et
from elastune import messages as m
from elastune.market.price_file import save_prices
from elastune.market.prices import Prices, PriceSeries

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
__all__ = ["folder"]  # a fixture

ROOT = Path(__file__).parent.parent
BEGIN_UNIX_S = 1_460_000_000.0
PAST_S = 7200.0
MARKET, PACE = "a/z", 60.0


def prices(changes: Mapping[float, float]) -> Prices:
    """By seconds since the run began."""
    at_s, usd = zip(*sorted({**changes, -PAST_S: 0.2}.items()), strict=True)
    return Prices({MARKET: PriceSeries(MARKET, BEGIN_UNIX_S + PACE * np.array(at_s), np.array(usd))})


def spikes(every_s: float, number: int) -> Prices:
    """Too short to be seen by who looks twice a second."""
    begins = [every_s * place for place in range(1, number + 1)]
    return prices(dict.fromkeys(begins, 9.0) | {at_s + 0.1: 0.2 for at_s in begins})


# ---------------------------------------------------------------------------------------------- nothing is lost


@pytest.mark.timeout(1200)  # ever new prices, until there were enough revocations
def test_trials_lose_nothing_when_machines_are_taken_away_with_and_without_notice() -> None:
    """The short form of a benchmark: what it compares, and with what, is said there."""
    study = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "_spot_ray.py"), "--quick"], text=True, capture_output=True
    )
    assert study.returncode == 0, study.stdout + study.stderr
    figures = {figure["name"]: figure["ours"] for figure in json.loads(study.stdout.splitlines()[-1])}
    assert figures["revocations"] >= 6
    assert figures["lost_iterations"] == figures["counted_twice"] == figures["retrained_with_notice"] == 0
    assert figures["same_winner"] == 1


# -------------------------------------------------------------------------------------- in the middle of a step

BATCHES, STEPS = 400, 2
NOTICE_S = 5.0


def long_steps(log: Path) -> Any:
    """Writes down every batch that it has trained on, and leaves in the middle of a step when it must."""

    def train(config: Mapping[str, Any]) -> None:
        step, batch = et.get_checkpoint() or (0, 0)
        while True:
            while batch < BATCHES:
                time.sleep(0.05)
                batch += 1
                info = et.get_preemption_info()
                with log.open("a") as file:
                    line = {"step": step, "batch": batch, "pid": os.getpid(), "gone_in_s": info and info.gone_in_s}
                    file.write(json.dumps(line) + "\n")
                et.leave_if_preempted((step, batch))
            step, batch = step + 1, 0
            et.report({"loss": 1 / step}, checkpoint=(step, batch))

    return train


def test_a_long_step_is_left_when_the_notice_comes_and_goes_on_where_it_was(tmp_path: Path) -> None:
    log = tmp_path / "batches"
    tuner = et.Tuner(
        long_steps(log),
        space={"x": et.uniform(0, 1)},
        metric="loss",
        algorithm=et.FIFO(n=1, R=STEPS),
        name="run",
        storage=tmp_path,
        machines=1,
        market=et.Spot(
            types={MARKET: {"price": 2.0}},
            prices=spikes(every_s=15.0, number=5),
            begin=datetime.fromtimestamp(BEGIN_UNIX_S, UTC),
            revocation=None,
            notice=NOTICE_S * PACE,
            boot=0,
            pace=PACE,
        ),
        checkpoint_every="1h",
        max_retries=0,
    )
    result = tuner.fit(progress=False)
    assert result.status == "succeeded"
    [trial] = result.view.trials.values()
    assert [report.iteration for report in trial.reports] == [1, 2] and result.view.retrained == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    every_batch = [(step, batch) for step in range(STEPS) for batch in range(1, BATCHES + 1)]
    assert [(line["step"], line["batch"]) for line in lines] == every_batch, "each once, in order"
    left = [before for before, after in pairwise(lines) if before["pid"] != after["pid"]]
    assert any(line["batch"] < BATCHES for line in left), "it was never in the middle of a step"
    told = [line["gone_in_s"] for line in lines if line["gone_in_s"] is not None]
    assert told and all(0 < gone_in_s <= NOTICE_S for gone_in_s in told)
    assert [line["gone_in_s"] is not None for line in left] == [True] * len(left)
    assert left_behind(tmp_path / "run" / "machines") == []


# ------------------------------------------------------------------------------------------------ the driver dies

HALVING = EXPERIMENT.replace("{n: 27, r: 1, R: 27, eta: 3}", "{n: 4, r: 40, R: 80, eta: 2}")


def on_the_market(folder: Path, history: Prices, notice_s: float) -> str:
    save_prices(history, folder / "prices.csv")
    market = {
        "types": {MARKET: {"price": "$2"}},
        "prices": str(folder / "prices.csv"),
        "begin": datetime.fromtimestamp(BEGIN_UNIX_S, UTC).isoformat(),
        "revocation": None,
        "notice": f"{notice_s * PACE}s",
        "boot": "0s",
        "pace": PACE,
    }
    return HALVING.replace("cluster: {devices: 2}", f"cluster: {json.dumps({'machines': 2, 'market': market})}")


@pytest.fixture
def undisturbed(folder: Path) -> Any:
    (folder / "undisturbed").mkdir()
    write_experiment(folder / "undisturbed", 0.01, HALVING)
    return outcome(run_to_the_end(folder / "undisturbed"))


def test_a_resume_adopts_spot_machines_and_bills_them_at_the_price_of_the_moment(
    folder: Path, undisturbed: Any
) -> None:
    falling = prices({2.0 * place: 0.2 * 0.99**place for place in range(150)})
    driver, run = start(folder, 0.2, on_the_market(folder, falling, 5.0))
    assert wait_for(lambda: records_in(run) >= 40, driver) and driver.poll() is None
    before = keepers(run)
    kill(driver)
    time.sleep(2.0)  # for the price to change while nobody looks
    code, said = say("resume", run, "--quiet")
    assert code == 0, said
    assert before <= keepers(run) and len(before) == 2, "the same machines, not new ones of the same name"
    assert outcome(et.load(run)) == undisturbed
    assert nothing_is_left(run)

    price: dict[str, float] = {}
    resumed = False
    for record in journal(run):
        if m.RunResumed() in record.events:
            resumed, held = True, dict(price)
            now = {event.node: event.price_usd_per_hour for event in record.events if isinstance(event, m.NodePriced)}
            assert now.keys() == held.keys() == {"n0", "n1"}, "each has its price again"
            assert all(now[node] < held[node] for node in held), "and it is another"
        for event in record.events:
            assert not isinstance(event, m.NodeLost | m.NodeStray)
            if isinstance(event, m.NodePriced) or (isinstance(event, m.NodeBilled) and event.node not in price):
                price[event.node] = event.price_usd_per_hour
    assert resumed


def test_a_run_whose_driver_is_killed_while_machines_are_taken_away_ends_as_an_undisturbed_one(
    folder: Path, undisturbed: Any
) -> None:
    driver, run = start(folder, 0.2, on_the_market(folder, spikes(every_s=12.0, number=8), 3.0))
    for kills in count():
        enough = records_in(run) + 45
        if not wait_for(lambda: records_in(run) >= enough, driver) or driver.poll() is not None or kills == 3:  # noqa: B023
            break
        kill(driver)
        driver = elastune("resume", run, "--quiet")
    _, errors = driver.communicate(timeout=300)
    assert driver.returncode == 0, errors
    assert kills >= 2
    result = et.load(run)
    assert outcome(result) == undisturbed
    assert nothing_is_left(run)
    events = [event for record in journal(run) for event in record.events]
    noticed = {event.node for event in events if isinstance(event, m.NodeNotice)}
    assert noticed, "no machine was taken away: nothing was tested"
    paid = [use.node for use in result.view.machines]
    assert len(set(paid)) == len(paid), "none is billed twice"
