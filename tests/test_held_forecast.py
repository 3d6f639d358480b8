"""What machines cost that are held to the end, as a user meets it before the run: no run takes longer or costs more."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import elastune as et
from elastune.algorithm import Algorithm
from elastune.cli import main
from elastune.cluster.workload import Synthetic
from elastune.errors import Infeasible, SpecError
from elastune.held_forecast import HeldForecast
from elastune.profile.cloud import Cloud
from elastune.profile.latency import constant
from elastune.simulation import Simulation

FILE = """
name: exp
space: {lr: {loguniform: [1e-4, 1e-1]}}
metric: loss
algorithm: {ASHA: {n: null, r: 1, R: 27}}
deadline: 1h
budget: $16
price: $1
cluster: {machines: 3, devices: 4}
"""
ASHA, HYPERSCHED = et.ASHA(n=None, r=1, R=27), et.HyperSched(r=1, R=27)


@contextmanager
def held(algorithm: Algorithm, **changes: Any) -> Iterator[et.Tuner]:
    asked: dict[str, Any] = {"deadline": "1h", "budget": "$16", "price": "$1", "machines": 3, "devices": 4}
    with tempfile.TemporaryDirectory() as folder:
        yield et.Tuner(
            None,
            space={"lr": et.loguniform(1e-4, 1e-1)},
            metric="loss",
            algorithm=algorithm,
            name="t",
            storage=Path(folder),
            **(asked | changes),
        )


def forecast(algorithm: Algorithm, **changes: Any) -> HeldForecast:
    with held(algorithm, **changes) as tuner:
        found = tuner.plan()
    assert isinstance(found, HeldForecast)
    return found


def lines(found: HeldForecast) -> list[str]:
    return [" ".join(line.split()) for line in str(found).splitlines()]


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, env={"COLUMNS": "200"})


def test_hypersched_holds_what_the_budget_buys_until_the_deadline() -> None:
    found = forecast(HYPERSCHED, machines=10)
    assert lines(found) == [
        "machines 4 of 4 devices from the beginning to the end, $16.00/h together",
        "time at most 1h of 1h",
        "cost at most $16.00 of $16.00",
        "at most: the run ends sooner if it has nothing left to train",
    ]
    assert (found.time_s[0], found.cost_usd[0], found.device_s) == (3600.0, 16.0, 16 * 3600.0)


def test_it_is_said_when_the_budget_would_pay_for_more_machines() -> None:
    assert lines(forecast(HYPERSCHED))[-1] == "limited by machines=3: the budget would pay for 4"
    assert lines(forecast(ASHA, budget="30 device-hours"))[-1] == "limited by machines=3: the budget would pay for 7"


@pytest.mark.parametrize("algorithm", [ASHA, et.BOHB(R=27)], ids=["ASHA", "BOHB"])
def test_machines_that_are_first_come_first_served_are_paid_until_the_deadline_and_while_trials_save(
    algorithm: Algorithm,
) -> None:
    found = forecast(algorithm, grace="36s")
    assert lines(found)[:3] == [
        "machines 3 of 4 devices from the beginning to the end, $12.00/h together",
        "time at most 1h of 1h, and 36s of grace for trials to save",
        "cost at most $12.00 of $16.00, and $0.12 for that",
    ]
    assert found.time_s[0] == 3636.0 and found.cost_usd[0] == pytest.approx(12.12)


def test_a_budget_that_is_used_up_before_the_deadline_ends_the_run() -> None:
    said = lines(forecast(ASHA, budget="$3"))
    assert said[1].startswith("time at most 15m of 1h, and") and said[2].startswith("cost at most $3.00 of $3.00, and")
    assert said[-1] == "the budget is used up after 15m, before the deadline"
    said = lines(forecast(ASHA, budget="3 device-hours", price=None, deadline=None))
    assert said[1].startswith("time at most 15m, and")
    assert said[2] == "cost at most 180 device-minutes of 180 device-minutes, and 6 device-minutes for that"


def test_without_a_price_it_is_time_on_devices_that_is_told() -> None:
    assert lines(forecast(ASHA, price=None, budget=None))[2].startswith("cost at most 12 device-hours, and")
    assert lines(forecast(ASHA, price=0))[2].startswith("cost at most 12 device-hours of $16.00, and")


def test_a_schedule_that_could_be_planned_says_how() -> None:
    advice = "how long trials take is not known: measure the training with 'elastune profile', and give planning="
    assert advice in " ".join(lines(forecast(et.SuccessiveHalving(27, 1, 27))))
    assert "is not known" not in str(forecast(ASHA))


def test_what_never_has_to_end_or_is_decided_while_trials_run_cannot_be_told() -> None:
    class Own(et.Allocator):
        def allocate(self, view: et.View, at_s: float) -> et.Target:
            return et.Target(1, {})

    with (
        held(et.ASHA(9, 1, 9), deadline=None, budget=None) as tuner,
        pytest.raises(
            SpecError, match=r"^nothing says when the run must end: give a deadline, .* '80 device-minutes'$"
        ),
    ):
        tuner.plan()
    with (
        held(et.FIFO(9, 9), deadline=None, budget=None) as tuner,
        pytest.raises(SpecError, match=r"; or measure the training with 'elastune profile', and give planning="),
    ):
        tuner.plan()
    with (
        held(ASHA, allocator=Own()) as tuner,
        pytest.raises(SpecError, match="how many machines are held Own decides in it"),
    ):
        tuner.plan()


@settings(max_examples=60, deadline=None)
@given(
    algorithm=st.sampled_from([ASHA, HYPERSCHED, et.BOHB(R=9)]),
    deadline_s=st.floats(30, 1200),
    budget=st.floats(0.05, 3).map(lambda usd: f"${usd:.4f}")
    | st.floats(2, 150).map(lambda m: f"{m:.4f} device-minutes"),
    machines=st.integers(1, 6),
    devices=st.sampled_from([1, 2, 4]),
    step_s=st.floats(3, 60),
    minimum_s=st.sampled_from([0.0, 60.0, 400.0]),
)
def test_no_run_takes_longer_or_costs_more_than_was_said(
    algorithm: Algorithm, deadline_s: float, budget: str, machines: int, devices: int, step_s: float, minimum_s: float
) -> None:
    changes: dict[str, Any] = {"deadline": deadline_s, "budget": budget, "machines": machines, "devices": devices}
    if algorithm is HYPERSCHED:
        cloud = Cloud("m", devices, float(devices), boot=constant(5.0), minimum_s=minimum_s)
        changes |= {"planning": et.Planning(cloud=cloud), "devices": None, "price": None}
    try:
        with held(algorithm, **changes) as tuner:
            found = tuner.plan()
            result = tuner.simulate(Simulation(Synthetic("loss", "min", step_s=step_s), stragglers=0.3))
    except (Infeasible, et.RunFailed):
        assume(False)
    rounding = 1 + 1e-8
    assert result.view.at_s <= found.time_s[0] * rounding and result.cost <= found.cost_usd[0] * rounding
    assert isinstance(found, HeldForecast) and len(result.view.machines) <= found.machines


# --------------------------------------------------------------------------------------------------- the command line


@pytest.mark.parametrize("algorithm", ["ASHA: {n: null, r: 1, R: 27}", "HyperSched: {r: 1, R: 27}"])
def test_the_plan_as_json_agrees_with_the_table(tmp_path: Path, algorithm: str) -> None:
    file = tmp_path / "exp.yaml"
    file.write_text(FILE.replace("ASHA: {n: null, r: 1, R: 27}", algorithm))
    found = json.loads(call("plan", str(file), "--json").stdout)
    said = call("plan", str(file), "--plot", str(tmp_path / "pictures"))
    assert said.exit_code == 0 and list(tmp_path.iterdir()) == [file], "nothing is started or written"
    assert found["held"] == [{"until_s": 3600.0, "machines": 3}] and found["plots"] == []
    assert found["cost_usd"]["at_most"] == pytest.approx(12 * found["time_s"]["at_most"] / 3600)
    assert found["time_s"]["at_most"] == 3600.0 + found["grace_s"]
    assert "at most $12.00 of $16.00" in said.stdout and "no pictures: the machines are the same" in said.stdout


def test_a_budget_that_is_too_small_for_hypersched_is_infeasible(tmp_path: Path) -> None:
    file = tmp_path / "exp.yaml"
    file.write_text(FILE.replace("ASHA: {n: null, r: 1, R: 27}", "HyperSched: {r: 1, R: 27}").replace("$16", "$3"))
    said = call("plan", str(file))
    assert said.exit_code == 3 and not said.stdout
    assert "exp.yaml: the budget of $3.00 is too small for one machine until the deadline" in said.stderr
