"""A market played on machines of this computer: they come when the price allows it, and go when it does not.

The time of a market is set by telling when the run began: nothing here waits for prices. Machines have no Ray, and need
none.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.market.test_cloud import priced
from tests.provider.world import NOTICED_S, have_ended, keeper_pid, names, running, wait_until

from elastune.market.cloud import Capacity, Kind, PlayedCloud
from elastune.messages import Offer
from elastune.provider import machine as m
from elastune.provider.base import Machine
from elastune.provider.played import Played

Play = Callable[..., Played]
SPOT = Offer("a/z", "spot", 0.3)
RISES = priced([(0, 0.2), (1000, 0.5)], notice_s=60.0)


def at(provider: Played, market_s: float) -> Played:
    """Now it is so late in the market, which is played as fast as it was."""
    provider.run_began(time.time() - market_s)
    return provider


def only(provider: Played) -> Machine:
    [machine] = provider.list()
    return machine


def test_a_request_below_the_price_waits_costs_nothing_and_is_not_lost(played: Play, tmp_path: Path) -> None:
    provider = at(played(priced([(0, 0.5), (1000, 0.2)])), 10.0)
    provider.request("n0", SPOT)
    assert not only(provider).served and not (tmp_path / "n0").exists()
    at(provider, 900.0)
    assert not only(provider).served
    at(provider, 1001.0)
    before_unix_s = time.time()
    machine = only(provider)
    assert machine.served and machine.billed_from_unix_s >= before_unix_s
    assert machine.price_usd_per_hour == 0.2


def test_a_request_that_waits_can_be_given_back(played: Play, tmp_path: Path) -> None:
    provider = at(played(priced([(0, 0.5), (1000, 0.2)])), 10.0)
    provider.request("n0", SPOT)
    provider.release("n0")
    assert provider.list() == []
    at(provider, 2000.0)
    assert provider.list() == [] and not (tmp_path / "n0").exists()
    assert not provider.was_taken("n0")


def test_the_price_of_a_machine_is_that_of_the_moment(played: Play) -> None:
    provider = at(played(priced([(0, 0.2), (1000, 0.25), (2000, 0.1)], pace=1.0)), 10.0)
    provider.request("n0", SPOT)
    provider.request("n1", Offer("a/z"))
    seen = []
    for market_s in (10.0, 1001.0, 2001.0):
        seen.append([machine.price_usd_per_hour for machine in at(provider, market_s).list()])
    assert seen == [[0.2, 1.0], [0.25, 1.0], [0.1, 1.0]]


@pytest.mark.parametrize(("pace", "refund_s"), [(1.0, 0.0), (60.0, 3600.0)])
def test_played_faster_an_hour_costs_more_and_its_refund_ends_sooner(
    pace: float, refund_s: float, played: Play
) -> None:
    provider = at(played(priced([(0, 0.2)], pace=pace, refund_s=refund_s)), 1.0)
    provider.request("n0", SPOT)
    provider.request("n1", Offer("a/z"))
    spot, on_demand = provider.list()
    assert spot.price_usd_per_hour == pytest.approx(0.2 * pace) and spot.refund_s == refund_s / pace
    assert on_demand.price_usd_per_hour == pytest.approx(pace) and on_demand.refund_s == 0.0


def test_a_machine_is_revoked_with_notice_when_its_price_is_above_the_offer(played: Play, tmp_path: Path) -> None:
    provider = at(played(priced([(0, 0.2), (1000, 0.5)], notice_s=4.0)), 10.0)
    provider.request("n0", SPOT)
    provider.request("n1", Offer("a/z", "spot", 0.6))
    provider.request("n2", Offer("a/z"))
    pids = running(tmp_path, "n0")
    assert all(machine.gone_at_unix_s is None for machine in provider.list())
    at(provider, 1001.0)
    noticed = {machine.name: machine.gone_at_unix_s for machine in provider.list()}
    gone_at_unix_s = noticed.pop("n0")
    assert noticed == {"n1": None, "n2": None} and gone_at_unix_s is not None
    assert gone_at_unix_s == pytest.approx(time.time() + 3.0, abs=0.5), "the price rose a second ago"
    assert provider.list()[0].gone_at_unix_s == gone_at_unix_s, "once"
    assert wait_until(lambda: names(provider) == ["n1", "n2"], 4.0 + NOTICED_S)
    assert time.time() >= gone_at_unix_s
    assert provider.was_taken("n0") and not provider.was_taken("n1")
    assert wait_until(lambda: have_ended(pids), NOTICED_S)


def test_a_price_that_came_back_between_two_looks_counts(played: Play) -> None:
    provider = at(played(priced([(0, 0.2), (1000, 0.5), (1001, 0.2)], notice_s=60.0)), 990.0)
    provider.request("n0", SPOT)
    assert only(provider).gone_at_unix_s is None
    at(provider, 1002.0)
    assert only(provider).gone_at_unix_s == pytest.approx(time.time() + 58.0, abs=0.5)


def test_a_notice_that_is_over_before_anybody_looked_takes_the_machine_at_once(played: Play) -> None:
    provider = at(played(priced([(0, 0.2), (1000, 0.5), (1001, 0.2)], notice_s=60.0)), 990.0)
    provider.request("n0", SPOT)
    assert wait_until(lambda: names(at(provider, 1100.0)) == [], NOTICED_S)
    assert provider.was_taken("n0")


def test_when_fewer_machines_can_be_had_those_that_came_last_go(played: Play) -> None:
    cloud = PlayedCloud({"a/z": Kind(1.0)}, capacity={"a/z": Capacity(100.0, np.array([3.0, 1.0]), 0.2)}, notice_s=60.0)
    provider = at(played(cloud), 10.0)
    for name in ("n0", "n1", "n2", "n3"):
        provider.request(name, Offer("a/z", "spot"))
    assert [machine.served for machine in provider.list()] == [True, True, True, False]
    at(provider, 110.0)
    for _ in range(2):
        there = [machine for machine in provider.list() if machine.served]
        assert [machine.gone_at_unix_s is not None for machine in there] == [False, True, True]


def test_a_released_machine_was_not_taken_away(played: Play) -> None:
    provider = at(played(RISES), 10.0)
    provider.request("n0", SPOT)
    provider.release("n0")
    assert names(at(provider, 2000.0)) == [] and not provider.was_taken("n0")


def test_a_machine_that_dies_while_it_is_to_be_revoked_does_no_harm(played: Play, tmp_path: Path) -> None:
    """It is seen alive, and is gone when the notice should be given."""
    provider = at(played(RISES), 10.0)
    provider.request("n0", SPOT)
    m.write_why_gone(tmp_path / "n0", "its raylet died")
    assert provider._take({"n0": Machine("n0", 2, None, time.time())}) is False
    at(provider, 1001.0)
    assert provider._take({"n0": Machine("n0", 2, None, time.time())}) is False
    assert provider.list() == [] and not provider.was_taken("n0")


# ------------------------------------------------------------------------------------------------ after a crash


def leave(provider: Played, folder: Path) -> None:
    """As when a driver is killed, once its machines have begun to boot."""
    for order in folder.glob("*/order.json"):
        keeper_pid(folder, order.parent.name)
    provider.close()


def after_a_crash(played: Play, cloud: PlayedCloud, provider: Played, folder: Path) -> Played:
    """A new driver on the same machines."""
    leave(provider, folder)
    return played(cloud)


def test_a_new_driver_knows_the_offers_of_machines_that_are_there(played: Play, tmp_path: Path) -> None:
    cloud = priced([(0, 0.2), (1000, 0.35), (2000, 0.2)], notice_s=1e6)
    provider = at(played(cloud), 1500.0)
    provider.request("n0", Offer("a/z", "spot", 0.4))
    provider.request("n1", Offer("a/z"))
    provider.request("n2", SPOT)
    before = provider.list()
    assert [machine.served for machine in before] == [True, True, False]
    again = at(after_a_crash(played, cloud, provider, tmp_path), 1500.0)
    assert again.list() == before, "also the one that waits"
    assert [machine.price_usd_per_hour for machine in at(again, 2001.0).list()] == [0.2, 1.0, 0.2]
    assert all(machine.gone_at_unix_s is None for machine in again.list())


def test_a_new_driver_knows_nothing_of_what_was_given_back_or_is_gone(played: Play, tmp_path: Path) -> None:
    provider = at(played(RISES), 1500.0)
    for name, offer in (("n0", SPOT), ("n1", Offer("a/z")), ("n2", Offer("a/z"))):
        provider.request(name, offer)
    provider.release("n0")
    provider.release("n1")
    m.write_why_gone(tmp_path / "n2", "its raylet died")
    provider.close()
    again = at(played(RISES), 1500.0)
    assert again.list() == []


def test_a_new_driver_gives_no_second_notice(played: Play, tmp_path: Path) -> None:
    provider = at(played(RISES), 10.0)
    provider.request("n0", SPOT)
    at(provider, 1001.0)
    noticed = only(provider)
    assert noticed.gone_at_unix_s is not None
    again = at(after_a_crash(played, RISES, provider, tmp_path), 1020.0)
    assert only(again).gone_at_unix_s == noticed.gone_at_unix_s
    assert again.was_taken("n0")


def test_what_the_price_did_while_there_was_no_driver_counts(played: Play, tmp_path: Path) -> None:
    cloud = priced([(0, 0.2), (2000, 0.5), (2100, 0.2)], pace=1000.0, notice_s=60_000.0)
    began_unix_s = time.time()
    provider = played(cloud)
    provider.run_began(began_unix_s)
    provider.request("n0", SPOT)
    assert only(provider).gone_at_unix_s is None
    leave(provider, tmp_path)
    time.sleep(max(0.0, began_unix_s + 2.2 - time.time()))
    again = played(cloud)
    again.run_began(began_unix_s)
    assert only(again).gone_at_unix_s == pytest.approx(began_unix_s + 2.0 + 60.0, abs=0.1)


def test_a_machine_that_went_while_there_was_no_driver_was_taken_away(played: Play, tmp_path: Path) -> None:
    cloud = priced([(0, 0.2), (1000, 0.5)], notice_s=2.0)
    provider = at(played(cloud), 10.0)
    provider.request("n0", SPOT)
    gone_at_unix_s = only(at(provider, 1000.5)).gone_at_unix_s
    assert gone_at_unix_s is not None
    leave(provider, tmp_path)
    time.sleep(max(0.0, gone_at_unix_s - time.time()))
    again = at(played(cloud), 1010.0)
    assert again.list() == [] and again.was_taken("n0")
