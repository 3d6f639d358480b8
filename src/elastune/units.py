"""Durations, amounts of money and sizes as people write them: "1h30m", "$20", "2GB"."""

from __future__ import annotations

import math
import re
import sys
from datetime import timedelta

from elastune.errors import SpecError

_UNITS_S = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_NUMBER = r"[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?"
# Each unit at most once, from the largest to the smallest: "5m1h" is more likely a slip than a wish.
_DURATION = re.compile(r"\s*".join(rf"(?:(?P<{unit}>{_NUMBER})\s*{unit})?" for unit in _UNITS_S))
_MONEY = re.compile(rf"\$?\s*([0-9]{{1,3}}(?:,[0-9]{{3}})+(?:\.[0-9]+)?|{_NUMBER})\s*(?:usd)?")
_DEVICE_TIME = re.compile(rf"({_NUMBER})\s*device[- ](hours?|minutes?|seconds?)")
_UNITS_BYTES = {"b": 1.0, **{f"{unit}b": 1000.0**i for i, unit in enumerate("kmgt", 1)}}
_UNITS_BYTES |= {f"{unit}ib": 1024.0**i for i, unit in enumerate("kmgt", 1)}
DEAREST_USD = 1e6
"""An hour of nothing that trains costs more: it is a slip."""
_NOTHING = 1e-6  # seconds or dollars: so much is left by rounding
_SIZE = re.compile(rf"({_NUMBER})\s*({'|'.join(_UNITS_BYTES)})?")


def parse_duration(value: object, name: str = "duration", zero: bool = False) -> float:
    """Seconds of "90s", "20m", "1h30m", "500ms", a timedelta or a bare number, which already counts seconds.

    Zero is refused unless it is said to make sense.
    """
    number = value
    if isinstance(value, timedelta):
        number = value.total_seconds()
    elif isinstance(value, str):
        text = value.strip().lower()
        if re.fullmatch(_NUMBER, text):
            number = float(text)
        elif found := _DURATION.fullmatch(text):
            number = sum(float(amount) * _UNITS_S[unit] for unit, amount in found.groupdict().items() if amount)
    if zero and isinstance(number, int | float) and not isinstance(number, bool) and number == 0 and value != "":
        return 0.0
    wanted = "duration of at least 0" if zero else "positive duration"
    return _positive(number, f'{name}={value!r}: must be a {wanted} such as "90s", "20m" or "1h30m"')


def parse_money(value: object, name: str = "amount", zero: bool = False) -> float:
    """US dollars of "$20", "20", "20 USD", "$1,200.50" or a number. Zero is refused unless it is said to make sense."""
    number = value
    if isinstance(value, str) and (found := _MONEY.fullmatch(value.strip().lower())):
        number = float(found[1].replace(",", ""))
    if zero and isinstance(number, int | float) and not isinstance(number, bool) and number == 0:
        return 0.0
    wanted = "an amount of at least 0" if zero else "a positive amount of"
    return _positive(number, f'{name}={value!r}: must be {wanted} US dollars such as "$20" or "20 USD"')


def parse_hourly_price(value: object, name: str = "price", zero: bool = False) -> float:
    """US dollars per hour, written as `parse_money` reads them."""
    usd = parse_money(value, name, zero)
    if usd > DEAREST_USD:
        raise SpecError(f"{name}={value!r}: must be at most ${DEAREST_USD:,.0f} an hour")
    return usd


def parse_device_time(value: object, name: str = "amount") -> float | None:
    """Seconds of devices of "80 device-minutes" or "2 device-hours"; None for what is no such thing."""
    if isinstance(value, str) and (found := _DEVICE_TIME.fullmatch(value.strip().lower())):
        number = float(found[1]) * _UNITS_S[found[2][0]]
        return _positive(number, f'{name}={value!r}: must be a positive time on devices such as "80 device-minutes"')
    return None


def parse_size(value: object, name: str = "size") -> float:
    """Bytes of "500MB", "1.5 GB", "2GiB" or a bare number."""
    number = value
    if isinstance(value, str) and (found := _SIZE.fullmatch(value.strip().lower())):
        number = float(found[1]) * _UNITS_BYTES[found[2] or "b"]
    return _positive(number, f'{name}={value!r}: must be a size such as "500MB", "2GB" or "2GiB"')


def _positive(number: object, error: str) -> float:
    # A comparison is false for NaN, and exact for whole numbers that are too large for a float.
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number <= sys.float_info.max:
        raise SpecError(error)
    return float(number)


def format_duration(seconds: float) -> str:
    """Short for people: the two largest units, such as "1h 30m"; below a minute "12.5s" or "250ms"."""
    if not math.isfinite(seconds):
        return str(seconds)
    if seconds < 0:
        return f"-{format_duration(-seconds)}"
    if 0 < round(seconds, 3) < 1:
        return f"{seconds * 1000:.0f}ms"
    if round(seconds, 1) < 60:
        return f"{round(seconds, 1):g}s"
    for large, small in (("d", "h"), ("h", "m"), ("m", "s")):
        # Rounded before it is split: 59m 59.9s shall become 1h, not 59m 60s.
        total = round(seconds / _UNITS_S[small])
        whole, rest = divmod(total, round(_UNITS_S[large] / _UNITS_S[small]))
        if whole:
            break
    return f"{whole}{large} {rest}{small}" if rest else f"{whole}{large}"


def unit_of_device_time(seconds: float) -> tuple[float, str]:
    """In what such a time is said, and how many seconds that has."""
    return (3600.0, "device-hours") if seconds > 4 * 3600 else (60.0, "device-minutes")


def format_device_time(seconds: float) -> str:
    """ "80 device-minutes", and what is longer than four hours in hours."""
    unit_s, unit = unit_of_device_time(seconds)
    return f"{format_amount(0.0 if abs(seconds) < _NOTHING else seconds / unit_s)} {unit}"


def format_amount(amount: float) -> str:
    """Four digits, and more only before the point."""
    return f"{amount:,.0f}" if amount >= 1000 else f"{amount:.4g}"


def format_money(usd: float) -> str:
    """ "$1,200.50"; amounts below a dollar keep three digits, since the price of a second is worth reading."""
    usd = 0.0 if abs(usd) < _NOTHING else usd
    sign = "-" if usd < 0 else ""
    amount = abs(usd)
    if not 0 < amount < 1:
        return f"{sign}${amount:,.2f}"
    cents, rest = f"{amount:.{2 - math.floor(math.log10(amount))}f}".split(".")
    return f"{sign}${cents}.{rest[:2]}{rest[2:].rstrip('0')}"
