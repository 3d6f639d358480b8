"""Prices are read from files as people have them, and what cannot be a price is named with its line."""

from __future__ import annotations

import gzip
import json
import logging
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastune.errors import SpecError
from elastune.market.price_file import load_prices, save_prices
from elastune.market.prices import Prices, PriceSeries, gaps

HEADER = "timestamp,availability_zone,instance_type,product,price_usd_h\n"
NOON_2016 = 1_456_315_200.0  # 2016-02-24T12:00:00Z


def row(
    time: str, price: str = "0.5", kind: str = "m1.small", zone: str = "us-east-1c", product: str = "Linux/UNIX"
) -> str:
    return f"{time},{zone},{kind},{product},{price}\n"


def written(folder: Path, *rows: str, header: str = HEADER) -> Path:
    path = folder / "prices.csv"
    path.write_text(header + "".join(rows))
    return path


def pairs(series: PriceSeries) -> list[tuple[float, float]]:
    return list(zip((series.changed_unix_s - NOON_2016).tolist(), series.usd_per_hour.tolist(), strict=True))


@pytest.mark.parametrize(
    ("time", "after_noon_s"),
    [
        ("2016-02-24T12:00:00Z", 0.0),
        ("2016-02-24T12:00:01.500Z", 1.5),
        ("2016-02-24T12:00:00+00:00", 0.0),
        ("2016-02-24T14:00:00+02:00", 0.0),
        ("2016-02-24T12:00:00", 0.0),
        ("2016-02-24 12:00:00", 0.0),
    ],
)
def test_times_are_read_as_utc_unless_they_say_otherwise(tmp_path: Path, time: str, after_noon_s: float) -> None:
    series = load_prices(written(tmp_path, row(time)))["m1.small/us-east-1c"]
    assert pairs(series) == [(after_noon_s, 0.5)]


def test_columns_are_found_by_name_beside_others_and_the_product_may_be_missing(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "0.5,x,m1.small,2016-02-24T12:00:00Z,z\n",
        header="price_usd_h,note,instance_type,timestamp,availability_zone\n",
    )
    assert pairs(load_prices(path)["m1.small/z"]) == [(0.0, 0.5)]


def test_names_of_aws_do_in_csv_and_in_json(tmp_path: Path) -> None:
    record = {
        "AvailabilityZone": "us-east-1c",
        "InstanceType": "m1.small",
        "ProductDescription": "Linux/UNIX",
        "SpotPrice": "0.500000",
        "Timestamp": "2016-02-24T12:00:00+00:00",
    }
    table = written(tmp_path, ",".join(record.values()) + "\n", header=",".join(record) + "\n")
    whole, bare = tmp_path / "whole.json", tmp_path / "bare.json"
    whole.write_text(json.dumps({"SpotPriceHistory": [record]}))
    bare.write_text(json.dumps([record]))
    for path in (table, whole, bare):
        assert pairs(load_prices(path)["m1.small/us-east-1c"]) == [(0.0, 0.5)]


def test_a_packed_file_is_known_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_bytes(gzip.compress((HEADER + row("2016-02-24T12:00:00Z")).encode()))
    assert list(load_prices(path)) == ["m1.small/us-east-1c"]


def test_records_are_sorted_and_an_equal_one_counts_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [row("2016-02-24T12:01:00Z", "2"), row("2016-02-24T12:00:00Z", "1"), row("2016-02-24T12:01:00Z", "2")]
    assert pairs(load_prices(written(tmp_path, *rows))["m1.small/us-east-1c"]) == [(0.0, 1.0), (60.0, 2.0)]
    assert not caplog.records


def test_of_two_prices_at_one_time_the_last_counts_and_a_warning_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [row("2016-02-24T12:00:00Z", price) for price in ("3", "1", "2")]
    with caplog.at_level(logging.WARNING):
        found = load_prices(written(tmp_path, *rows, row("2016-02-24T12:00:00Z", "9", zone="z")))
    assert pairs(found["m1.small/us-east-1c"]) == [(0.0, 2.0)]
    assert pairs(found["m1.small/z"]) == [(0.0, 9.0)]
    assert "2 records with another price" in caplog.text


def test_types_and_zones_choose_markets(tmp_path: Path) -> None:
    path = written(tmp_path, *(row("2016-02-24T12:00:00Z", kind=kind, zone=zone) for kind in "ab" for zone in "yz"))
    assert list(load_prices(path, types=["a"])) == ["a/y", "a/z"]
    assert list(load_prices(path, zones=["z"])) == ["a/z", "b/z"]
    assert list(load_prices(path, ["b"], ["y"])) == ["b/y"]


def test_of_several_products_linux_is_taken_unless_another_is_chosen(tmp_path: Path) -> None:
    rows = [row("2016-02-24T12:00:00Z", "1"), row("2016-02-24T12:00:00Z", "2", product="Windows")]
    path = written(tmp_path, *rows)
    assert load_prices(path)["m1.small/us-east-1c"].at(NOON_2016) == 1.0
    assert load_prices(path, product="Windows")["m1.small/us-east-1c"].at(NOON_2016) == 2.0
    with pytest.raises(SpecError, match=r"product 'Linux/UNIX': .*it has: Windows"):
        load_prices(written(tmp_path, rows[1]))


def test_a_gap_is_told_and_the_price_holds_over_it(tmp_path: Path) -> None:
    times = ("2016-02-24T12:00:00Z", "2016-02-24T12:10:00Z", "2016-02-26T12:10:00Z")
    series = load_prices(written(tmp_path, *(row(time, str(i + 1)) for i, time in enumerate(times))))[
        "m1.small/us-east-1c"
    ]
    assert gaps(series, 3600.0) == [(NOON_2016 + 600, NOON_2016 + 600 + 2 * 86400)]
    assert gaps(series, 2 * 86400.0) == []
    assert series.at(NOON_2016 + 86400) == 2.0


GOOD = row("2016-02-24T12:00:00Z")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty: it must be CSV with the columns timestamp"),
        ("\n\n", "is empty"),
        (HEADER, "has no prices: there must be at least one record"),
        (HEADER.replace("price_usd_h", "prize_usd_h"), "column price_usd_h is missing; did you mean 'prize_usd_h'"),
        (HEADER.replace("timestamp", "when"), "column timestamp is missing; it has: availability_zone"),
        (HEADER.replace("product", "SpotPrice") + GOOD, "'SpotPrice' and 'price_usd_h' are the same column"),
        (HEADER + GOOD + row("2016-02-24T12:00:00Z", "-0.5"), "line 3: price '-0.5': must be dollars per hour"),
        (HEADER + GOOD + "\n" + row("2016-02-24T12:00:00Z", "0"), "line 4: price '0': must be"),
        (HEADER + row("2016-02-24T12:00:00Z", "nan"), "line 2: price 'nan'"),
        (HEADER + row("2016-02-24T12:00:00Z", "inf"), "line 2: price 'inf'"),
        (HEADER + GOOD + row("2016-02-24T12:00:00Z", "1e300"), "line 3: price '1e300'"),
        (HEADER + row("2016-02-24T12:00:00Z", "cheap"), "line 2: price 'cheap'"),
        (HEADER + row("2016-02-24T12:00:00Z", ""), "line 2: price ''"),
        (HEADER + row("yesterday"), "line 2: timestamp 'yesterday': must be ISO 8601, such as 2024-01-13T00:02:05Z"),
        (HEADER + row("2016-02-30T12:00:00Z"), "line 2: timestamp '2016-02-30T12:00:00Z'"),
        (HEADER + row(""), "line 2: timestamp ''"),
        (HEADER + row("0001-01-01T00:00:00+05:00"), "line 2: timestamp '0001-01-01T00:00:00+05:00'"),
        (HEADER + row("9999-12-31T23:00:00-05:00"), "from 1970 to 2099"),
        (HEADER + "2016-02-24T12:00:00Z,z\n", "line 2: '2016-02-24T12:00:00Z,z' has 2 fields"),
        (HEADER + row("2016-02-24T12:00:00Z", kind=""), "line 2: instance_type ''"),
        ('{"SpotPriceHistory": [', "is not JSON"),
        ("[" * 200_000, "nested too deeply"),
        ('{"Prices": []}', "must have a list SpotPriceHistory"),
        ('{"SpotPriceHistory": []}', "has no prices"),
        ("[3]", "record 1: 3: must have Timestamp"),
        ('[{"Timestamp": "2016-02-24T12:00:00Z"}]', "record 1: the column availability_zone is missing"),
        ('[{"Timestamp": 5, "InstanceType": "a", "AvailabilityZone": "z", "SpotPrice": 1}]', "record 1: timestamp '5'"),
    ],
)
def test_what_cannot_be_is_named_with_its_place(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "prices.csv"
    path.write_text(content)
    with pytest.raises(SpecError) as error:
        load_prices(path)
    assert str(error.value).startswith(str(path))
    assert said in str(error.value)


def test_a_file_that_cannot_be_read_or_unpacked_is_refused(tmp_path: Path) -> None:
    for content in (b"\xff\xfe\x00", b"\x1f\x8bnonsense", gzip.compress(HEADER.encode() * 50)[:30]):
        path = tmp_path / "prices.csv.gz"
        path.write_bytes(content)
        with pytest.raises(SpecError, match=r"prices\.csv\.gz: "):
            load_prices(path)
    with pytest.raises(SpecError, match="No such file"):
        load_prices(tmp_path / "none.csv")
    with pytest.raises(SpecError, match="cannot be read"):
        load_prices(tmp_path)


def test_an_unknown_type_or_zone_is_named_with_those_that_are_known(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD, row("2016-02-24T12:00:00Z", kind="t1.micro", zone="us-east-1a"))
    with pytest.raises(SpecError, match=r"machine type 'm1.smal'.*did you mean 'm1.small'"):
        load_prices(path, types=["m1.smal"])
    with pytest.raises(SpecError, match=r"zone 'us-east-1d'.*allowed: us-east-1a, us-east-1c"):
        load_prices(path, zones=["us-east-1d"])
    with pytest.raises(SpecError, match="not together"):
        load_prices(path, ["m1.small"], ["us-east-1a"])


@given(
    st.dictionaries(
        st.sampled_from(["a/y", "a/z", "b/z", "c"]),
        st.dictionaries(st.integers(0, 2**41), st.floats(1e-9, 1e6), min_size=1, max_size=20),
        min_size=1,
    ),
    st.sampled_from(["saved.csv", "saved.csv.gz"]),
)
def test_what_is_saved_reads_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, given_ms: dict[str, dict[int, float]], name: str
) -> None:
    prices = Prices(
        {
            market: PriceSeries(
                market, np.array(sorted(records)) / 1000, np.array([records[ms] for ms in sorted(records)])
            )
            for market, records in given_ms.items()
        }
    )
    path = tmp_path_factory.getbasetemp() / name
    save_prices(prices, path)
    again = load_prices(path)
    assert list(again) == list(prices)
    for market in prices:
        assert again[market].changed_unix_s.tolist() == prices[market].changed_unix_s.tolist()
        assert again[market].usd_per_hour.tolist() == prices[market].usd_per_hour.tolist()


def test_saving_where_nothing_can_be_written_is_refused(tmp_path: Path) -> None:
    prices = load_prices(written(tmp_path, GOOD))
    with pytest.raises(SpecError, match="cannot be written"):
        save_prices(prices, tmp_path / "none" / "saved.csv")
