from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from elastune.errors import SpecError
from elastune.profile import Cloud, cloud_for, constant, normal, parse_cloud
from elastune.profile.catalog import catalog


def test_every_type_of_the_catalog_makes_a_cloud() -> None:
    types = catalog()
    assert len({each.name for each in types}) == len(types) >= 40
    assert {each.provider for each in types} == {"aws", "gcp", "azure"}
    for each in types:
        cloud = cloud_for(each.name)
        assert (cloud.instance, cloud.devices, cloud.boot) == (each.name, each.devices, each.boot)
        assert cloud.price_usd_per_hour == each.price_usd_per_hour > 0


def test_spot_machines_are_cheaper() -> None:
    for each in catalog():
        if each.spot_usd_per_hour is not None:
            assert 0 < cloud_for(each.name, "spot").price_usd_per_hour < each.price_usd_per_hour


def test_larger_machines_of_a_family_cost_in_proportion() -> None:
    names = ["p3.2xlarge", "p3.8xlarge", "p3.16xlarge"]
    clouds = [cloud_for(name) for name in names]
    assert [(cloud.devices, cloud.price_usd_per_hour) for cloud in clouds] == [(1, 3.06), (4, 12.24), (8, 24.48)]


def test_what_is_given_goes_before_the_catalog() -> None:
    cloud = cloud_for("p3.8xlarge", boot=normal(45.0, 5.0), price_usd_per_hour=9.0, minimum_s=0.0, billing="function")
    assert (cloud.boot, cloud.price_usd_per_hour, cloud.minimum_s) == (normal(45.0, 5.0), 9.0, 0.0)
    assert cloud.devices == 4 and cloud.billing == "function"


UNKNOWN: list[tuple[Callable[[], Cloud], str]] = [
    (lambda: cloud_for("p3.8xlarg"), "machine type 'p3.8xlarg': did you mean 'p3.8xlarge'?"),
    (lambda: cloud_for("p3.8xlarge", "spott"), "market='spott': did you mean 'spot'?"),  # type: ignore[arg-type]
    (lambda: cloud_for("p3.8xlarge", boots=3), "unknown field 'boots'; did you mean 'boot'?"),
    (lambda: cloud_for("p3.8xlarge", boot=3), "boot=3: must be a Latency"),
    (lambda: cloud_for("a3-highgpu-8g", "spot"), "no spot price is known: give a price"),
]


@pytest.mark.parametrize(("make", "message"), UNKNOWN)
def test_what_the_catalog_does_not_have_is_refused(make: Callable[[], Cloud], message: str) -> None:
    with pytest.raises(SpecError) as error:
        make()
    assert message in str(error.value)


def test_a_cloud_section_may_name_a_type_and_replace_some_of_it() -> None:
    given = {
        "type": "p3.8xlarge",
        "market": "spot",
        "boot": "45s",
        "data_gb": 150,
        "data_usd_per_gb": 0.01,
        "billing": "instance",
        "minimum": "2m",
    }
    expected = cloud_for("p3.8xlarge", "spot", boot=constant(45.0), data_gb=150, data_usd_per_gb=0.01, minimum_s=120.0)
    assert parse_cloud(given, "cloud") == expected
    assert parse_cloud({"type": "a3-highgpu-8g", "market": "spot", "price": "$30"}, "cloud").price_usd_per_hour == 30


def test_a_cloud_section_may_be_the_name_of_a_type_alone() -> None:
    assert parse_cloud("p3.8xlarge", "cloud") == cloud_for("p3.8xlarge")


def test_a_cloud_section_may_be_a_type_of_the_users_own() -> None:
    boot = {"normal": {"mean": 30, "std": 5}}
    given = {"name": "mine", "devices": 8, "price": "$3.20", "request": "10s", "boot": boot}
    assert parse_cloud(given, "cloud") == Cloud("mine", 8, 3.2, constant(10.0), normal(30.0, 5.0))
    assert parse_cloud({"name": "mine", "devices": 1, "price": 0}, "cloud").price_usd_per_hour == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            3,
            "cloud=3: must be a type of the catalog such as p3.8xlarge, or have a type, or a name, devices and a price",
        ),
        ({}, "must be a type of the catalog"),
        ("p3.8xlarg", "cloud: machine type 'p3.8xlarg': did you mean 'p3.8xlarge'?"),
        ("", "cloud: type='': must be a text"),
        ({"type": "p3.8xlarg"}, "cloud: machine type 'p3.8xlarg': did you mean 'p3.8xlarge'?"),
        ({"type": 3}, "cloud: type=3: must be a text"),
        ({"type": "p3.8xlarge", "name": "mine"}, "cloud: unknown field 'name'"),
        ({"type": "p3.8xlarge", "market": "spt"}, "cloud: market='spt': did you mean 'spot'?"),
        ({"type": "p3.8xlarge", "bot": "3s"}, "cloud: unknown field 'bot'; did you mean 'boot'?"),
        ({"name": "mine", "devices": 8}, "cloud: price is missing"),
        ({"name": "mine", "price": 3}, "cloud: devices is missing"),
        ({"type": None, "devices": 1, "price": 1}, "or have a type, or a name"),
        ({"name": "mine", "devices": 8, "price": -1}, "cloud: price=-1: must be an amount of at least 0"),
        ({"name": "mine", "devices": 8, "price": float("nan")}, "cloud: price=nan"),
        ({"name": "mine", "devices": 0, "price": 1}, "cloud: devices=0: must be a whole number of at least 1"),
        ({"name": "", "devices": 1, "price": 1}, "cloud: name='': must be a text"),
        ({"name": "mine", "devices": 1, "price": 1, "boot": -1}, "cloud: boot=-1: must be a duration of at least 0"),
        ({"name": "mine", "devices": 1, "price": 1, "data_gb": -1}, "cloud: data_gb=-1"),
        (
            {"type": "p3.8xlarge", "data_gb": 150},
            "cloud: data_gb=150 without data_usd_per_gb: say what a gigabyte costs",
        ),
        ({"type": "p3.8xlarge", "data_gb": 1, "data_usd_per_gb": None}, "cloud: data_gb=1 without data_usd_per_gb"),
        ({"name": "mine", "devices": 1, "price": 1, "billing": "hour"}, "cloud: billing='hour': allowed: function"),
    ],
)
def test_a_cloud_section_that_cannot_be_is_refused(given: Any, message: str) -> None:
    with pytest.raises(SpecError) as error:
        parse_cloud(given, "cloud")
    assert message in str(error.value)
