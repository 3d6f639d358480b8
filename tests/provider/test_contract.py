"""What holds for every provider."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from tests.market.test_cloud import priced
from tests.provider.world import names, ready

from elastune.messages import Offer
from elastune.provider import Provider
from elastune.provider.here import Here
from elastune.provider.local import Local
from elastune.provider.played import Played

BOOTS_FOR_EVER_S = 1e6
OFFER = Offer("a/z", "spot", 0.3)
"""It makes no difference where there is no market."""
CHEAP = priced([(0, 0.2)])


def make(kind: str, local: Callable[..., Local], played: Callable[..., Played], boot_s: float = 0.0) -> Provider:
    if kind == "here":
        return Here(2, 0.1)
    return played(CHEAP, boot_s) if kind == "played" else local(boot_s=boot_s)


@pytest.fixture(params=["here", "local", "played"])
def provider(request: pytest.FixtureRequest, local: Callable[..., Local], played: Callable[..., Played]) -> Provider:
    """One whose machines need not be ready, and are not, where that takes time."""
    return make(request.param, local, played, BOOTS_FOR_EVER_S)


def test_a_machine_that_is_asked_for_is_there_and_billed_from_then_on(provider: Provider) -> None:
    before_unix_s = time.time()
    assert provider.list() == []
    provider.request("n0", OFFER)
    provider.request("n1", OFFER)
    assert names(provider) == ["n0", "n1"]
    for machine in provider.list():
        assert machine.devices == 2
        assert before_unix_s <= machine.billed_from_unix_s <= time.time()
        assert machine.gone_at_unix_s is None


def test_asking_twice_for_the_same_machine_gives_one(provider: Provider) -> None:
    provider.request("n0", OFFER)
    [first] = provider.list()
    provider.request("n0", OFFER)
    assert provider.list() == [first]


def test_a_released_machine_is_not_there_any_more(provider: Provider) -> None:
    provider.request("n0", OFFER)
    provider.request("n1", OFFER)
    provider.release("n0")
    assert names(provider) == ["n1"]
    provider.release("n0")
    provider.release("never there")
    assert names(provider) == ["n1"]


def test_a_name_can_be_used_again_and_the_bill_starts_anew(provider: Provider) -> None:
    provider.request("n0", OFFER)
    [first] = provider.list()
    provider.release("n0")
    provider.request("n0", OFFER)
    [second] = provider.list()
    assert second.billed_from_unix_s > first.billed_from_unix_s


def test_a_machine_costs_as_much_as_its_devices(provider: Provider) -> None:
    assert provider.price() == pytest.approx(0.2)


@pytest.mark.usefixtures("head")
@pytest.mark.parametrize("kind", ["here", "local", "played"])
def test_a_ready_machine_runs_what_is_placed_there(
    kind: str, local: Callable[..., Local], played: Callable[..., Played]
) -> None:
    @ray.remote(num_cpus=0)
    def where() -> str:
        return str(ray.get_runtime_context().get_node_id())

    provider = make(kind, local, played)
    provider.request("n0", OFFER)
    _, ray_node = ready(provider, "n0")
    there: Any = NodeAffinitySchedulingStrategy(ray_node, soft=False)
    assert ray.get(where.options(scheduling_strategy=there).remote()) == ray_node
