"""Every cent of the bill has a purpose, and stands next to what was forecast."""

from __future__ import annotations

import io
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console, RenderableType
from tests.allocate.planned import planned_tuner
from tests.control.test_recovery import faults
from tests.market.test_cloud import priced
from tests.plan.jobs import clouds, profiles, schedules
from tests.worlds import world

import elastune as et
from elastune.algorithm import SpotTune
from elastune.allocate import FirstComeFirstServed
from elastune.allocate.cheapest_step import CheapestStep
from elastune.cluster.simulated import Fault
from elastune.cluster.workload import Synthetic
from elastune.profile.cloud import Cloud
from elastune.profile.job import JobProfile
from elastune.profile.latency import constant
from elastune.profile.scaling import Scaling
from elastune.record.projection import RunView
from elastune.reporting import ledger_dict, ledger_table
from elastune.reporting.ledger import Ledger, ledger
from elastune.simulation import Simulation
from elastune.spec import Width

few = settings(max_examples=40, deadline=None)
PLAIN = JobProfile(constant(1.0), Scaling({1: 1, 2: 2}))
PAGE = Path(__file__).parents[2] / "docs" / "reports.md"


def text(part: RenderableType) -> str:
    out = io.StringIO()
    Console(file=out, width=120).print(part)
    return out.getvalue()


def assert_balances(view: RunView) -> Ledger:
    books = ledger(view)
    assert books.total == pytest.approx(view.cost_usd(), abs=1e-6)
    assert sum(books.sums().values()) == pytest.approx(view.cost_usd(), abs=1e-6)
    for paid, use in zip(books.machines, view.machines, strict=True):
        assert paid.machine == use.node and paid.total == pytest.approx(use.cost_usd, abs=1e-9)
        assert min(paid.training, paid.idle, paid.booting, paid.minimum, paid.data) >= -1e-9
    assert sum(books.trials.values()) == pytest.approx(books.sums()["training"], abs=1e-6)
    return books


@few
@given(
    schedule=schedules(),
    profile=profiles(varies=True),
    cloud=clouds(varies=True, billings=("instance",)),
    machines=st.integers(1, 8),
    early_release=st.booleans(),
    losses=st.lists(
        st.builds(Fault, st.floats(0, 200), st.just("lose"), st.sampled_from(["n0", "n1", "n2"])), max_size=3
    ),
)
def test_the_parts_of_a_planned_run_sum_to_its_bill(
    schedule: list[tuple[int, int]],
    profile: JobProfile,
    cloud: Cloud,
    machines: int,
    early_release: bool,
    losses: list[Fault],
) -> None:
    with planned_tuner(et.Stages(schedule), profile, cloud, machines, early_release=early_release) as tuner:
        view = tuner.simulate(Simulation(faults=losses)).view
        books = assert_balances(view)
    assert books.sums()["data"] == pytest.approx(len(view.machines) * cloud.data_usd)
    assert bool(books.sums()["booting"]) == any(
        ready_s > use.from_s for use, ready_s in zip(view.machines, view.ready_s, strict=True)
    )
    assert ledger_dict(view)["paid_usd"]["total"] == books.total


@few
@given(
    devices=st.integers(1, 3),
    width=st.sampled_from([1, Fraction(1, 2), Fraction(1, 3)]),
    boot_s=st.sampled_from([0.0, 2.5]),
    hit=faults,
    turns=st.integers(0, 60),
)
def test_so_do_those_of_any_other_run_at_any_moment(
    devices: int, width: Width, boot_s: float, hit: list[Fault], turns: int
) -> None:
    """Also where trials share devices, and while the run goes on."""
    allocator = FirstComeFirstServed(2, width)
    place = world(
        et.ASHA(10, 1, 9, 3),
        allocator=allocator,
        devices=devices,
        boot_s=boot_s,
        price=36.0,
        faults=hit,
        max_retries=20,
    )
    assert_balances(place.start().turns(turns).view)
    assert_balances(place.run().view)


def test_booting_idling_minimum_and_data_are_told_apart() -> None:
    """Two trials of ten and thirty steps on a machine with two devices, at two dollars a second."""
    cloud = Cloud("m", 2, 7200.0, boot=constant(5.0), minimum_s=100.0, data_gb=3.0, data_usd_per_gb=0.5)
    with planned_tuner(et.Stages([(2, 10), (1, 20)]), JobProfile(constant(1.0), Scaling({1: 1})), cloud, 1) as tuner:
        view = tuner.simulate(Simulation()).view
    books = assert_balances(view)
    assert view.at_s == pytest.approx(35.0)
    expected = {"training": 40.0, "idle": 20.0, "booting": 10.0, "minimum": 130.0, "data": 1.5}
    assert books.sums() == pytest.approx(expected)
    first, second = books.trials.values()
    assert (first, second) == pytest.approx((30.0, 10.0)), "the dearest first"


def test_where_nothing_is_wasted_all_is_training() -> None:
    with planned_tuner(et.Stages([(2, 10)]), PLAIN, Cloud("m", 2, 7200.0, minimum_s=0.0), 1) as tuner:
        books = assert_balances(tuner.simulate(Simulation()).view)
    assert books.sums() == pytest.approx({"training": 20.0, "idle": 0, "booting": 0, "minimum": 0, "data": 0})


@pytest.mark.parametrize("adopted", [True, False])
def test_the_time_without_a_driver_is_idle_where_machines_waited_and_not_paid_where_they_went(adopted: bool) -> None:
    """A trial of ten steps on one of two devices, at a dollar a second; killed at the fourth, back after a minute."""
    place = world(et.FIFO(1, R=10), devices=2, price=1800.0, checkpoint_every_s=1.0)
    crashed = place.start().turns(5)
    (at_s,) = {report.at_s for trial in crashed.view.trials.values() for report in trial.reports[-1:]}
    assert at_s == crashed.view.at_s == 4.0
    if adopted:
        crashed.cluster.now_s += 60.0
        crashed.cluster._heap.clear()  # the workers ended with their driver
        view = place.adopt(crashed).run().view
    else:
        view = place.resume(crashed.journal, 60.0).run().view
    books = assert_balances(view)
    trained_s = view.busy_device_s()
    assert 10.0 <= trained_s <= 11.0 and view.at_s == pytest.approx(trained_s + 60.0)
    assert books.sums()["training"] == pytest.approx(trained_s / 2)
    assert books.sums()["idle"] == pytest.approx(trained_s / 2 + (60.0 if adopted else 0.0))


def test_what_rounding_leaves_over_is_nothing() -> None:
    """A third of a cent here and there, whose sums differ in the last digit."""
    noisy = 0
    for price in range(1, 40):
        cloud = Cloud("m", 2, price / 3, boot=constant(0.1), minimum_s=0.0)
        with planned_tuner(et.Stages([(2, 10), (1, 21)]), PLAIN, cloud, 1) as tuner:
            view = tuner.simulate(Simulation(stragglers=0.1)).view
        books, (use,) = assert_balances(view), view.machines
        noisy += use.cost_usd != (use.to_s - use.from_s) * (use.price_usd_per_hour / 3600)
        assert books.sums()["minimum"] == books.sums()["data"] == 0.0
        assert "minimum" not in text(ledger_table(view)) and "data" not in text(ledger_table(view))
        assert ledger_dict(view)["paid_usd"]["minimum"] == 0.0
    assert noisy, "there was no noise to be seen"


def test_what_cost_nothing_is_not_in_the_table_but_small_amounts_are() -> None:
    free = text(ledger_table(world(et.FIFO(2, R=3), devices=2).run().view))
    assert free.split() == ["machine", "total", "all", "$0.00"]
    cheap = world(et.FIFO(2, R=3), devices=2, price=1e-9).run().view
    assert "n0" in text(ledger_table(cheap)) and "t-00001" in text(ledger_table(cheap))
    assert ledger(cheap).total == pytest.approx(cheap.cost_usd()) and cheap.cost_usd() > 0


def test_forecast_and_bill_stand_side_by_side() -> None:
    cloud = Cloud("m", 2, 7200.0, minimum_s=0.0)
    with planned_tuner(et.Stages([(2, 10), (1, 20)]), PLAIN, cloud, 1) as tuner:
        expected = tuner.plan()
        as_planned = tuner.simulate(Simulation()).view
        late = tuner.simulate(Simulation(start_s=2.0)).view
    found = ledger_dict(as_planned)
    assert found["forecast"] == {"time_s": pytest.approx(20.0), "cost_usd": pytest.approx(expected.cost_usd.mean())}
    assert found["paid_usd"]["total"] == pytest.approx(40.0)
    assert text(ledger_table(as_planned)).count("+0.0%") == 2
    assert "forecast" in text(ledger_table(late)) and "+20.0%" in text(ledger_table(late))
    plain = world(et.FIFO(2, R=3), devices=2, price=1.0).run().view
    assert ledger_dict(plain)["forecast"] is None and "forecast" not in text(ledger_table(plain))


def test_every_field_of_the_ledger_is_documented() -> None:
    with planned_tuner(et.Stages([(2, 10)]), PLAIN, Cloud("m", 2, 7200.0), 1) as tuner:
        found = ledger_dict(tuner.simulate(Simulation()).view)
    page = PAGE.read_text("utf-8")
    fields = {"ledger", *found, *found["forecast"], *found["paid_usd"], *found["machines"][0]}
    assert not {name for name in fields if f"`{name}`" not in page}


def test_prices_that_change_and_refunds_are_in_the_books() -> None:
    spikes = [(3000.0 * i + after_s, price) for i in range(40) for after_s, price in ((0.0, 0.2), (2500.0, 0.5))]
    cloud = priced(spikes, refund_s=3600.0, boot_s=60.0)
    workload = Synthetic("loss", "min", step_s=900.0)
    place = world(
        SpotTune(4, 20), allocator=CheapestStep(cloud, on_demand=False), machines=4, cloud=cloud, workload=workload
    )
    view = place.run().view
    refunded = [use for use in view.machines if use.revoked and use.cost_usd == 0.0]
    assert refunded and any(use.earlier for use in view.machines)
    books = assert_balances(view)
    paid = {each.machine: each.total for each in books.machines}
    assert all(paid[use.node] == 0.0 for use in refunded)
