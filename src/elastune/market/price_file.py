"""Prices in files: CSV, plain or packed with gzip, or the JSON that AWS's own command prints.

    timestamp,availability_zone,instance_type,product,price_usd_h
    2016-02-24T22:45:23.000Z,us-east-1c,m1.small,Linux/UNIX,0.007100

Columns are found by name, in any order and beside others; `product` may be left out. AWS's names (Timestamp,
AvailabilityZone, InstanceType, ProductDescription, SpotPrice) do as well. A time without a zone is UTC.

A record says from when on a price holds, and it holds until the next record of its market: where records are missing,
nobody can tell that from a quiet market. `elastune.market.prices.gaps` shows where it may have been.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import logging
import math
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from elastune.errors import SpecError, did_you_mean
from elastune.market.prices import Floats, Prices, PriceSeries, market_name, sorted_series, split_market
from elastune.market.whole_file import write_whole
from elastune.units import DEAREST_USD

LINUX = "Linux/UNIX"
COLUMNS = ("timestamp", "availability_zone", "instance_type", "product", "price_usd_h")
OPTIONAL = "product"
_OTHER_NAMES = {"productdescription": "product", "spotprice": "price_usd_h"}
YEAR_2100_UNIX_S = 4_102_444_800.0
_GZIP = b"\x1f\x8b"
log = logging.getLogger("elastune")

Key = tuple[str, str, str]
"""Machine type, zone and product; the product is empty where the file does not tell."""


@dataclass(slots=True)
class _Records:
    """Of one market, as they stand in the file; `places` are lines of CSV or numbers of JSON records."""

    times: list[str] = field(default_factory=list)
    prices: list[str] = field(default_factory=list)
    places: list[int] = field(default_factory=list)


def load_prices(
    path: str | Path,
    types: Collection[str] | None = None,
    zones: Collection[str] | None = None,
    product: str = LINUX,
) -> Prices:
    """The prices in a file, of some machine types and zones or of all.

    Records may come in any order. One that is there twice counts once; of two prices for one market and time the last
    in the file counts, and a warning says how many there were.
    """
    path = Path(path)
    text = _read(path)
    is_json = text.lstrip()[:1] in ("{", "[")
    found = _from_json(path, text) if is_json else _from_csv(path, text)
    if not found:
        raise SpecError(f"{path}: has no prices: there must be at least one record")
    place = "record" if is_json else "line"
    series, replaced = {}, 0
    for key in _chosen(path, found, types, zones, product):
        one, dropped = _series(path, place, key, found[key])
        series[one.market] = one
        replaced += dropped
    if replaced:
        log.warning(
            "%s: %d record%s with another price for the same market and time: the last one in the file counts",
            *(path, replaced, "s" * (replaced != 1)),
        )
    return Prices(series)


def save_prices(prices: Prices, path: str | Path) -> None:
    """Write a CSV file that `load_prices` reads, in order of time; packed if its name ends with .gz."""
    path = Path(path)
    rows = [
        (at, zone, kind, price)
        for market, series in prices.items()
        for kind, zone in [split_market(market)]
        for at, price in zip(series.changed_unix_s.tolist(), series.usd_per_hour.tolist(), strict=True)
    ]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([name for name in COLUMNS if name != OPTIONAL])
    writer.writerows((_iso(at), zone, kind, repr(price)) for at, zone, kind, price in sorted(rows))
    content = text.getvalue().encode()
    try:
        write_whole(path, gzip.compress(content, 6, mtime=0) if path.suffix == ".gz" else content)
    except OSError as error:
        raise SpecError(f"{path}: cannot be written: {error.strerror}; give another file") from None


def _iso(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).isoformat().replace("+00:00", "Z")


# ----------------------------------------------------------------------------------------------------------- reading


def _read(path: Path) -> str:
    try:
        content = path.read_bytes()
        return (gzip.decompress(content) if content.startswith(_GZIP) else content).decode("utf-8-sig")
    except OSError as error:  # also of gzip: a file that is none
        raise SpecError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (EOFError, zlib.error) as error:
        raise SpecError(f"{path}: cannot be unpacked, it is damaged or cut short: {error}") from None
    except UnicodeDecodeError:
        raise SpecError(f"{path}: is no text in UTF-8: it must be CSV or JSON, plain or packed with gzip") from None


def _from_csv(path: Path, text: str) -> dict[Key, _Records]:
    reader = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True)
    try:
        header = next((row for row in reader if row), None)
        if header is None:
            raise SpecError(f"{path}: is empty: it must be CSV with the columns {', '.join(COLUMNS)}")
        columns = _columns(path, header)
        return _grouped(path, ((reader.line_num, row) for row in reader if row), columns)
    except csv.Error as error:
        raise SpecError(f"{path}, line {reader.line_num}: is not CSV: {error}") from None


def _columns(path: Path, header: Sequence[str]) -> list[int | None]:
    """Where each of COLUMNS stands; None: the file has no product."""
    places: dict[str, int] = {}
    for place, name in enumerate(header):
        plain = name.strip().lower().replace("_", "")
        known = {each.replace("_", ""): each for each in COLUMNS} | _OTHER_NAMES
        if plain in known and places.setdefault(known[plain], place) != place:
            raise SpecError(f"{path}: {header[places[known[plain]]]!r} and {name!r} are the same column: keep one")
    for name in COLUMNS:
        if name not in places and name != OPTIONAL:
            raise SpecError(f"{path}: the column {name} is missing; {did_you_mean(name, header, 'it has')}")
    return [places.get(name) for name in COLUMNS]


def _grouped(path: Path, rows: Iterable[tuple[int, Sequence[str]]], columns: list[int | None]) -> dict[Key, _Records]:
    time, zone, kind, product, price = columns
    assert time is not None and zone is not None and kind is not None and price is not None
    found: dict[Key, _Records] = {}
    for line, row in rows:
        try:
            key = (row[kind], row[zone], "" if product is None else row[product])
            when, amount = row[time], row[price]
        except IndexError:
            raise SpecError(
                f"{path}, line {line}: {','.join(row)!r} has {len(row)} fields, fewer than the first line names"
            ) from None
        records = found.get(key)
        if records is None:
            records = found[key] = _Records()
        records.times.append(when)
        records.prices.append(amount)
        records.places.append(line)
    return found


def _from_json(path: Path, text: str) -> dict[Key, _Records]:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise SpecError(f"{path}: is not JSON: {error}") from None
    except RecursionError:
        raise SpecError(f"{path}: is nested too deeply: it must be a list of records") from None
    records = content.get("SpotPriceHistory") if isinstance(content, dict) else content
    if not isinstance(records, list):
        raise SpecError(
            f"{path}: must have a list SpotPriceHistory, as `aws ec2 describe-spot-price-history` prints it"
        )
    return _grouped(path, _json_rows(path, records), [0, 1, 2, 3, 4])


def _json_rows(path: Path, records: list[object]) -> Iterator[tuple[int, list[str]]]:
    for number, record in enumerate(records, 1):
        if not isinstance(record, dict):
            raise SpecError(f"{path}, record {number}: {record!r}: must have Timestamp, InstanceType and SpotPrice")
        try:
            places = _columns(path, list(record))
        except SpecError as error:
            raise SpecError(str(error).replace(f"{path}:", f"{path}, record {number}:", 1)) from None
        values = [str(value) for value in record.values()]
        yield number, ["" if place is None else values[place] for place in places]


# ---------------------------------------------------------------------------------------------------- one series each


def _chosen(
    path: Path,
    found: Collection[Key],
    types: Collection[str] | None,
    zones: Collection[str] | None,
    product: str,
) -> list[Key]:
    products = {each for _, _, each in found}
    if products != {""}:  # else the file does not tell, and there is nothing to choose
        if product not in products:
            raise SpecError(f"{path}: product {product!r}: {did_you_mean(product, products, 'it has')}")
        found = [key for key in found if key[2] == product]
    for what, place, wanted in (("machine type", 0, types), ("zone", 1, zones)):
        known = {key[place] for key in found}
        for name in wanted or ():
            if name not in known:
                raise SpecError(f"{path}: {what} {name!r}: there are no prices of it; {did_you_mean(name, known)}")
    kept = [key for key in found if (not types or key[0] in types) and (not zones or key[1] in zones)]
    if not kept:
        raise SpecError(
            f"{path}: there are no prices of {', '.join(sorted(types or ()))} in {', '.join(sorted(zones or ()))}: "
            "each is in the file, but not together"
        )
    return kept


def _series(path: Path, place: str, key: Key, records: _Records) -> tuple[PriceSeries, int]:
    """The series, and how many records another one with the same time has replaced."""
    kind, zone, _ = key
    if not kind or "/" in kind:
        raise SpecError(f"{path}, {place} {records.places[0]}: instance_type {kind!r}: must be a name such as m5.large")
    times, prices = _times(path, place, records), _prices(path, place, records)
    return sorted_series(market_name(kind, zone), times, prices)


def _times(path: Path, place: str, records: _Records) -> Floats:
    found = np.empty(len(records.times))
    for i, text in enumerate(records.times):
        try:
            moment = datetime.fromisoformat(text)
            found[i] = unix_s = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except ValueError:
            unix_s = math.nan
        if not 0 <= unix_s < YEAR_2100_UNIX_S:
            raise SpecError(
                f"{path}, {place} {records.places[i]}: timestamp {text!r}: must be ISO 8601, such as "
                "2024-01-13T00:02:05Z, from 1970 to 2099"
            )
    return found


def _prices(path: Path, place: str, records: _Records) -> Floats:
    found = np.empty(len(records.prices))
    for i, text in enumerate(records.prices):
        try:
            found[i] = price = float(text)
        except ValueError:
            price = math.nan
        if not 0 < price <= DEAREST_USD:
            raise SpecError(
                f"{path}, {place} {records.places[i]}: price {text!r}: must be dollars per hour, greater than 0 and at "
                f"most {DEAREST_USD:.0f}"
            )
    return found
