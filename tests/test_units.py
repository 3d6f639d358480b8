from __future__ import annotations

import math
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastune.errors import SpecError
from elastune.units import (
    format_device_time,
    format_duration,
    format_money,
    parse_device_time,
    parse_duration,
    parse_money,
)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("90s", 90),
        ("20m", 1200),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("2d", 172_800),
        ("500ms", 0.5),
        ("1m500ms", 60.5),
        ("1.5h", 5400),
        (" 10 S ", 10),
        ("90", 90),
        ("1e3", 1000),
        ("1.5e1m", 900),
        (90, 90),
        (0.25, 0.25),
        (timedelta(minutes=2), 120),
    ],
)
def test_a_duration_is_read_as_seconds(value: object, seconds: float) -> None:
    assert parse_duration(value) == seconds


BAD = ["-5m", "0s", "", "  ", "soon", "5x", "m", "5m1h", "1m1m", "nan", "inf", 0, -1, math.nan, math.inf, 10**400]
NO_NUMBER: list[object] = [True, None, [], "9" * 400]


@pytest.mark.parametrize("value", [*BAD, *NO_NUMBER, timedelta(0), timedelta(seconds=-1)])
def test_what_is_no_positive_duration_is_refused(value: object) -> None:
    with pytest.raises(SpecError, match="must be a positive duration"):
        parse_duration(value)


def test_the_error_names_the_field_the_value_and_what_is_allowed() -> None:
    with pytest.raises(SpecError) as error:
        parse_duration("-5m", "deadline")
    assert str(error.value) == 'deadline=\'-5m\': must be a positive duration such as "90s", "20m" or "1h30m"'
    with pytest.raises(SpecError, match=r"^boot=-1: must be a duration of at least 0 such as"):
        parse_duration(-1, "boot", zero=True)
    with pytest.raises(SpecError, match=r"^price=-5: must be an amount of at least 0 US dollars"):
        parse_money(-5, "price", zero=True)
    with pytest.raises(SpecError, match=r"^budget='€20': must be a positive amount of US dollars"):
        parse_money("€20", "budget")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.25, "250ms"),
        (0.9999, "1s"),
        (12.54, "12.5s"),
        (45, "45s"),
        (59.99, "1m"),
        (90, "1m 30s"),
        (3599.9, "1h"),
        (5400, "1h 30m"),
        (86_400, "1d"),
        (2 * 86_400 + 3 * 3600, "2d 3h"),
        (-5400, "-1h 30m"),
        (math.inf, "inf"),
    ],
)
def test_a_duration_is_written_in_its_two_largest_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.floats(1, 1e8))
def test_a_written_duration_is_read_back_but_for_rounding(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=0.06)


@pytest.mark.parametrize(
    ("value", "usd"),
    [
        ("$20", 20),
        ("20", 20),
        ("20 USD", 20),
        ("20usd", 20),
        ("$1,200.50", 1200.5),
        ("$ 0.5", 0.5),
        ("$1e9", 1e9),
        ("2.5E-3 USD", 0.0025),
        (20, 20),
        (1.5, 1.5),
    ],
)
def test_money_is_read_as_dollars(value: object, usd: float) -> None:
    assert parse_money(value) == usd


@pytest.mark.parametrize("value", [*BAD, *NO_NUMBER, "-$5", "$", "12,00", "20 EUR", "$0", "$1e400", "1e"])
def test_what_is_no_positive_amount_is_refused(value: object) -> None:
    with pytest.raises(SpecError, match="must be a positive amount of US dollars"):
        parse_money(value)


@pytest.mark.parametrize(
    ("usd", "text"),
    [
        (1200.5, "$1,200.50"),
        (0, "$0.00"),
        (0.01, "$0.01"),
        (0.00123, "$0.00123"),
        (0.0144, "$0.0144"),
        (0.5, "$0.50"),
        (-5, "-$5.00"),
        (-0.001, "-$0.001"),
        (2.8e-17, "$0.00"),
        (-2.8e-17, "$0.00"),
    ],
)
def test_money_is_written_for_people(usd: float, text: str) -> None:
    assert format_money(usd) == text


@given(st.floats(0.01, 1e9))
def test_written_money_is_read_back_to_the_cent(usd: float) -> None:
    assert parse_money(format_money(usd)) == pytest.approx(usd, abs=0.0051)


def test_nothing_may_cost_nothing_where_that_makes_sense() -> None:
    assert parse_money("$0", zero=True) == parse_money(0, zero=True) == 0.0
    for value in (-1, "", "free", False, math.nan):
        with pytest.raises(SpecError):
            parse_money(value, zero=True)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("80 device-minutes", 4800),
        ("1 device-minute", 60),
        ("2 device-hours", 7200),
        ("1.5 Device-Hours", 5400),
        (" 30 device seconds ", 30),
        ("10device-hours", 36_000),
        ("1e9 device-hours", 3.6e12),
    ],
)
def test_time_on_devices_is_read_as_seconds(value: str, seconds: float) -> None:
    assert parse_device_time(value) == seconds


@pytest.mark.parametrize(
    "value", ["$20", "80 minutes", "80 gpu-minutes", "device-minutes", "-5 device-minutes", 80, None]
)
def test_what_is_no_time_on_devices_is_left_to_others(value: object) -> None:
    assert parse_device_time(value) is None


@pytest.mark.parametrize("value", ["0 device-minutes", "9" * 400 + " device-hours"])
def test_a_time_on_devices_that_cannot_be_is_refused_by_its_name(value: str) -> None:
    with pytest.raises(SpecError, match=r"^budget='.* device-.*': must be a positive time on devices such as"):
        parse_device_time(value, "budget")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (4800, "80 device-minutes"),
        (90, "1.5 device-minutes"),
        (4 * 3600, "240 device-minutes"),
        (5 * 3600, "5 device-hours"),
        (123_456 * 3600, "123,456 device-hours"),
        (0, "0 device-minutes"),
        (5e-14, "0 device-minutes"),
        (-5e-14, "0 device-minutes"),
    ],
)
def test_time_on_devices_is_written_for_people(seconds: float, text: str) -> None:
    assert format_device_time(seconds) == text


@given(st.floats(1, 3e6))
def test_written_time_on_devices_is_read_back_but_for_rounding(seconds: float) -> None:
    assert parse_device_time(format_device_time(seconds).replace(",", "")) == pytest.approx(seconds, rel=1e-3)
