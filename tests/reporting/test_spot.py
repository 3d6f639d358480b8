"""What spot machines have brought is told from the journal."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from tests.market.test_cloud import priced

import elastune as et
from elastune import messages as m
from elastune.cost import MachineUse
from elastune.record.projection import RunView
from elastune.reporting.plots import _costs
from elastune.reporting.spot import spot_dict, spot_text


def tuned(folder: Path, refund: bool) -> et.Result:
    """A price that is above every offer once in fifty minutes."""
    changes = [(3000.0 * i + after_s, price) for i in range(60) for after_s, price in ((0.0, 0.2), (2500.0, 0.9))]
    market = et.Spot(
        types={"a": {"price": 1.0}},
        prices=priced(changes, "a/z").prices,
        begin="1970-01-01T02:00",
        revocation=None,
        on_demand=False,
        refund=refund,
    )
    tuner = et.Tuner(
        None,
        space={"x": et.uniform(0, 1)},
        metric="loss",
        algorithm=et.FIFO(3, 12),
        market=market,
        machines=3,
        storage=folder,
    )
    return tuner.simulate(et.Simulation(workload=et.Synthetic("loss", "min", step_s=600.0)))


def test_what_was_taken_away_and_refunded_is_counted(tmp_path: Path) -> None:
    view = tuned(tmp_path, refund=True).view
    found = spot_dict(view)
    assert found is not None
    assert found["taken_away"] >= found["refunded"] > 0 and found["on_demand_machines"] == 0
    text = spot_text(view)
    assert text is not None and "taken away" in text and "refunded" in text and "on demand" in text


def test_without_a_refund_every_machine_is_paid_for(tmp_path: Path) -> None:
    view = tuned(tmp_path, refund=False).view
    found = spot_dict(view)
    assert found is not None and found["refunded"] == 0 and found["taken_away"] > 0
    assert found["cost_usd"] == pytest.approx(view.cost_usd())
    held_h = sum(max(use.to_s - use.from_s, use.minimum_s) for use in view.machines) / 3600
    assert found["on_demand_usd"] == pytest.approx(held_h * 1.0)


@pytest.mark.parametrize("refund", [True, False])
def test_the_cost_in_a_picture_is_what_was_paid_at_that_time(refund: bool, tmp_path: Path) -> None:
    view = tuned(tmp_path, refund).view
    turns = sorted({0.0, view.at_s, *(t for use in view.machines for t in (use.from_s, use.to_s))})
    assert _costs(view, np.array(turns)) == pytest.approx([view.cost_usd(t) for t in turns])


def test_the_cost_in_a_picture_does_not_look_at_every_machine_at_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    uses = [MachineUse("n", 1, 1.0, float(i), float(i + 2)) for i in range(500)]
    looked: list[float] = []
    until = MachineUse.until

    def counted(use: MachineUse, at_s: float) -> MachineUse:
        looked.append(at_s)
        return until(use, at_s)

    monkeypatch.setattr(MachineUse, "until", counted)
    view = cast(RunView, SimpleNamespace(machines=uses, at_s=501.0))
    assert _costs(view, np.array([501.0])) == pytest.approx(1000 / 3600)
    assert len(looked) < 5 * len(uses)


def test_what_was_reported_is_not_trained_again(tmp_path: Path) -> None:
    view = tuned(tmp_path, refund=True).view
    assert view.retrained == 0
    assert all(trial.iteration == 12 for trial in view.trials.values())


def test_a_run_without_a_market_says_nothing_of_it(tmp_path: Path) -> None:
    tuner = et.Tuner(None, space={"x": et.uniform(0, 1)}, metric="loss", algorithm=et.FIFO(2, 3), storage=tmp_path)
    assert spot_dict(tuner.simulate(et.Simulation()).view) is None


@pytest.mark.parametrize(("price", "said"), [(3.0, ", 200% above the $"), (1.0, ", about the $")])
def test_what_costs_as_much_as_on_demand_or_more_is_not_said_to_be_below(
    tmp_path: Path, price: float, said: str
) -> None:
    market = et.Spot(
        types={"a": {"price": 1.0}},
        prices=priced([(0.0, price), (1e6, price)], "a/z").prices,
        begin="1970-01-01T02:00",
        revocation=None,
        on_demand=False,
    )
    tuner = et.Tuner(
        None, space={"x": et.uniform(0, 1)}, metric="loss", algorithm=et.FIFO(1, 6), market=market, storage=tmp_path
    )
    view = tuner.simulate(et.Simulation(workload=et.Synthetic("loss", "min", step_s=600.0))).view
    text = spot_text(view)
    assert text is not None and said in text and "below" not in text


def test_a_machine_that_is_taken_away_while_it_boots_costs_nothing_where_there_is_a_refund(tmp_path: Path) -> None:
    changes = [(0.0, 0.2), (8000.0, 9.0), (8010.0, 0.2), (1e6, 0.2)]
    market = et.Spot(
        types={"a": {"price": 1.0}},
        prices=priced(changes, "a/z").prices,
        begin="1970-01-01T02:13:00",  # twenty seconds before the price rises
        revocation=None,
        on_demand=False,
        refund=True,
        boot="5m",
    )
    tuner = et.Tuner(
        None, space={"x": et.uniform(0, 1)}, metric="loss", algorithm=et.FIFO(1, 3), market=market, storage=tmp_path
    )
    view = tuner.simulate(et.Simulation(workload=et.Synthetic("loss", "min", step_s=300.0))).view
    first = view.machines[0]
    assert first.revoked and first.cost_usd == 0.0
    assert spot_dict(view) is not None and view.trials["experiment-00000"].iteration == 3


def test_a_machine_that_a_new_driver_finds_again_is_paid_for_once() -> None:
    billed = m.NodeBilled("n0", 1, 0.0, 1.0)
    view = RunView.of(
        [
            m.Record(0.0, (billed,), (), ()),
            m.Record(3600.0, (), (), (m.ReleaseNode(1, "n0"),)),  # the driver dies before it is carried out
            m.Record(7200.0, (m.RunResumed(), billed, m.NodeStray("n0")), (), (m.ReleaseNode(2, "n0"),)),
        ]
    )
    assert len(view.machines) == 1 and view.cost_usd() == pytest.approx(2.0)
