"""Profiles, latencies and clouds as a user writes them in YAML, and back again."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from elastune.errors import SpecError, did_you_mean
from elastune.profile.catalog import cloud_for
from elastune.profile.cloud import Cloud
from elastune.profile.fit import fit_scaling
from elastune.profile.job import JobProfile
from elastune.profile.latency import Latency, constant, empirical, lognormal, normal
from elastune.profile.scaling import Scaling, require_widths
from elastune.spec import require_number
from elastune.units import parse_duration, parse_hourly_price
from elastune.yaml_file import checked

PROFILE = {"step", "scaling", "step_s", "start", "cold_start", "packed"}
CLOUD = {"devices", "price", "request", "boot", "billing", "minimum", "data_gb", "data_usd_per_gb"}
_IN_PYTHON = {"name": "instance", "price": "price_usd_per_hour", "minimum": "minimum_s"}


@contextmanager
def _located(where: str) -> Iterator[None]:
    try:
        yield
    except SpecError as error:
        raise SpecError(f"{where}: {error}") from None


def parse_latency(given: object, name: str, zero: bool = True) -> Latency:
    """A duration, or `{normal: {mean: , std: }}`, `{lognormal: {mean: , std: }}` or `{empirical: [...]}`. Zero is
    refused where it makes no sense.
    """
    if not isinstance(given, Mapping):
        return constant(parse_duration(given, name, zero=zero))
    if len(given) != 1:
        raise SpecError(f"{name}={dict(given)!r}: must be a duration or one of normal, lognormal and empirical")
    ((kind, arguments),) = given.items()
    if kind == "empirical":
        if not isinstance(arguments, list) or not arguments:
            raise SpecError(f"{name}.empirical={arguments!r}: must be a list of at least one duration")
        return empirical(
            tuple(parse_duration(value, f"{name}.empirical[{i}]", zero=zero) for i, value in enumerate(arguments))
        )
    if kind not in ("normal", "lognormal"):
        raise SpecError(f"{name}={kind!r}: {did_you_mean(str(kind), ('normal', 'lognormal', 'empirical'))}")
    fields = checked(arguments, {"mean", "std"}, f"{name}.{kind}")
    for field in ("mean", "std"):
        if field not in fields:
            raise SpecError(f"{name}.{kind}: {field} is missing")
    mean_s = parse_duration(fields["mean"], f"{name}.{kind}.mean")
    std_s = parse_duration(fields["std"], f"{name}.{kind}.std", zero=True)
    return normal(mean_s, std_s) if kind == "normal" else lognormal(mean_s, std_s)


def parse_profile(given: object, where: str) -> JobProfile:
    """`{step: 109, scaling: {1: 1, 2: 1.9}, start: 2s, cold_start: 10s, packed: {2: 0.6}}`. In place of `step`
    and `scaling` there may be `step_s`, the seconds of a step by width, or a list of them: `{1: 109, 2: [57.7, 58.1]}`.
    """
    fields = checked(given, PROFILE, where)
    with _located(where):
        if "step_s" in fields:
            for name in ("step", "scaling"):
                if name in fields:
                    raise SpecError(f"step_s gives {name} as well: leave out one of them")
            step, scaling = _measured_by_hand(fields["step_s"])
        else:
            for name in ("step", "scaling"):
                if name not in fields:
                    raise SpecError(f"{name} is missing: give step and scaling, or step_s")
            step, scaling = parse_latency(fields["step"], "step", zero=False), _scaling(fields["scaling"])
        starts = {name: parse_latency(fields[name], name) for name in ("start", "cold_start") if name in fields}
        return JobProfile(step, scaling, **starts, packed=_packed(fields.get("packed", {})))


def _scaling(given: object) -> Scaling:
    speedups: dict[int, Any] = require_widths("scaling", given, "speed-up")
    return _from_one(Scaling(speedups))


def _packed(given: object) -> tuple[float, ...]:
    if not isinstance(given, Mapping) or list(given) != list(range(2, len(given) + 2)):
        raise SpecError(
            f"packed={given!r}: must map numbers of trials on a device, from 2 on and without a gap, to the speed of "
            "each, such as {2: 0.6, 3: 0.45}"
        )
    return tuple(given.values())


def _from_one(scaling: Scaling) -> Scaling:
    """`step` is that of one device already: a speed-up there would make every step faster than was said."""
    alone = scaling(1)
    if not math.isclose(alone, 1.0):
        raise SpecError(
            f"scaling[1]={alone:g}: must be 1, since step is the time on one device: divide all speed-ups by {alone:g}"
        )
    return scaling


def _measured_by_hand(given: object) -> tuple[Latency, Scaling]:
    steps: dict[int, list[float]] = {}
    for width, seconds in require_widths("step_s", given, "seconds").items():
        values = seconds if isinstance(seconds, list) else [seconds]
        if not values:
            raise SpecError(f"step_s[{width}]=[]: must have at least one duration")
        steps[width] = [parse_duration(value, f"step_s[{width}]") for value in values]
    return fit_scaling(steps)


def parse_cloud(given: object, where: str) -> Cloud:
    """A type of the catalog, `p3.8xlarge`, or with some of it replaced: `{type: p3.8xlarge, market: spot, boot: 45s}`.
    One of the user's own: `{name: mine, devices: 8, price: "$3.20", request: 10s, boot: {normal: {mean: 30, std: 5}}}`.
    """
    if isinstance(given, str):
        given = {"type": given}
    if isinstance(given, Mapping):
        given = {name: value for name, value in given.items() if value is not None}
    if not isinstance(given, Mapping) or ("type" not in given and "name" not in given):
        raise SpecError(
            f"{where}={given!r}: must be a type of the catalog such as p3.8xlarge, or have a type, or a name, devices "
            "and a price of its own"
        )
    fields = checked(given, CLOUD | ({"type", "market"} if "type" in given else {"name"}), where)
    with _located(where):
        arguments = {_IN_PYTHON.get(name, name): _cloud_value(name, value) for name, value in fields.items()}
        if "type" in fields:
            return cloud_for(arguments.pop("type"), arguments.pop("market", "on-demand"), **arguments)
        for name in ("devices", "price"):
            if name not in fields:
                raise SpecError(f"{name} is missing")
        return Cloud(**arguments)


def _cloud_value(name: str, value: object) -> Any:
    if name in ("request", "boot"):
        return parse_latency(value, name)
    if name == "price":
        return parse_hourly_price(value, name, zero=True)
    if name == "minimum":
        return parse_duration(value, name, zero=True)
    if name in ("name", "type", "market", "billing") and (not isinstance(value, str) or not value):
        raise SpecError(f"{name}={value!r}: must be a text")
    if name in ("data_gb", "data_usd_per_gb"):
        require_number(name, value, zero=True)
    return value


def describe_profile(profile: JobProfile) -> dict[str, object]:
    """What `parse_profile` reads."""
    with _located("cannot be saved"):
        given = _from_one(profile.scaling).speedups
        whole = {int(width) if width == int(width) else width: speedup for width, speedup in given.items()}
        speedups = require_widths("scaling", whole, "speed-up")
    latencies = {name: describe_latency(getattr(profile, name)) for name in ("step", "start", "cold_start")}
    packed = {"packed": dict(enumerate(profile.packed, 2))} if profile.packed else {}
    return {"step": latencies["step"], "scaling": speedups, **packed, **latencies}


def describe_cloud(cloud: Cloud) -> dict[str, object]:
    """What `parse_cloud` reads: a complete type, since prices in the catalog change."""
    described: dict[str, object] = {
        "name": cloud.instance,
        "devices": cloud.devices,
        "price": cloud.price_usd_per_hour,
        "request": describe_latency(cloud.request),
        "boot": describe_latency(cloud.boot),
        "billing": cloud.billing,
        "minimum": cloud.minimum_s,
        "data_gb": cloud.data_gb,
    }
    if cloud.data_usd_per_gb is not None:
        described["data_usd_per_gb"] = cloud.data_usd_per_gb
    return described


def describe_latency(latency: Latency) -> object:
    """What `parse_latency` reads."""
    if latency.kind == "constant":
        return latency.mean_s
    if latency.kind == "empirical":
        return {"empirical": list(latency.values)}
    return {latency.kind: {"mean": latency.mean_s, "std": latency.std_s}}
