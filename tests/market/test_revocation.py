"""What every predictor of revocations keeps to, and what ours promises on top."""

from __future__ import annotations

import builtins
import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.market.markets import BEGIN_UNIX_S, DAY_S, HOUR_S, spiky, spiky_prices, spiky_truth

from elastune.errors import SpecError
from elastune.market.boosted import HELD_OUT, Boosted, _training_set, inputs
from elastune.market.exceedance import Exceedance
from elastune.market.prices import Prices, PriceSeries
from elastune.market.revocation import FORMAT, MODELS, Revocation, load_revocation, model_class
from elastune.market.revpred import RevPred
from elastune.market.samples import asked_samples, training_times
from elastune.market.scores import score
from elastune.market.trees import from_sklearn

MARKET = "m1.large/us-1a"
PRICES = spiky_prices(days=5, markets=2)
UNTIL = BEGIN_UNIX_S + 4 * DAY_S
AT = UNTIL + np.array([0.0, 1.0, 7.3, 20.0]) * HOUR_S
each_model = pytest.mark.parametrize("name", MODELS)


@cache
def trained(name: str) -> Revocation:
    return model_class(name).fit(PRICES, UNTIL)


def bids(at: np.ndarray = AT, ratio: float = 1.3) -> np.ndarray:
    return ratio * trained("boosted").history(MARKET).price(at)


@each_model
def test_probabilities_are_within_0_and_1_and_the_same_one_by_one(name: str) -> None:
    found = trained(name).probabilities(MARKET, bids(), AT)
    assert found.shape == AT.shape and ((found >= 0) & (found <= 1)).all()
    single = [trained(name).probability(MARKET, bid, at) for bid, at in zip(bids(), AT, strict=True)]
    assert found == pytest.approx(np.array(single), abs=1e-6)


@each_model
def test_maximum_prices_and_times_are_broadcast(name: str) -> None:
    table = trained(name).probabilities(MARKET, [[0.5], [0.9]], AT)
    assert table.shape == (2, len(AT))
    assert table[1] == pytest.approx(trained(name).probabilities(MARKET, 0.9, AT), abs=1e-6)
    assert trained(name).probabilities(MARKET, [], []).shape == (0,)


@each_model
def test_a_saved_model_says_the_same(name: str, tmp_path: Path) -> None:
    trained(name).save(tmp_path / "model")
    loaded = load_revocation(tmp_path / "model", PRICES)
    assert type(loaded) is type(trained(name)) and loaded.until_unix_s == UNTIL
    before, after = (model.probabilities(MARKET, bids(), AT) for model in (trained(name), loaded))
    assert np.abs(before - after).max() <= 1e-12


@each_model
def test_the_same_seed_gives_the_same_model_and_what_comes_after_the_training_time_is_not_seen(name: str) -> None:
    changed = {
        market: PriceSeries(
            market,
            series.changed_unix_s,
            np.where(series.changed_unix_s > UNTIL, 9.0 + np.arange(len(series.changed_unix_s)), series.usd_per_hour),
        )
        for market, series in PRICES.items()
    }
    again = model_class(name).fit(Prices(changed), UNTIL)
    again.prices, again._histories = PRICES, {}
    assert again.probabilities(MARKET, bids(), AT).tolist() == trained(name).probabilities(MARKET, bids(), AT).tolist()


@each_model
def test_prices_after_the_time_asked_about_change_nothing(name: str, tmp_path: Path) -> None:
    trained(name).save(tmp_path / "model")
    series, at = PRICES[MARKET], float(AT[2])
    known = series.changed_unix_s <= at
    cut = PriceSeries(MARKET, series.changed_unix_s[known], series.usd_per_hour[known])
    later = PriceSeries(MARKET, np.append(cut.changed_unix_s, at + 1.0), np.append(cut.usd_per_hour, 50.0))
    said = [
        load_revocation(tmp_path / "model", Prices({MARKET: prices})).probability(MARKET, 0.5, at)
        for prices in (series, cut, later)
    ]
    assert said[0] == said[1] == said[2]


@each_model
def test_a_maximum_price_below_the_price_is_a_certain_revocation(name: str) -> None:
    price = trained(name).history(MARKET).price(AT)
    assert trained(name).probabilities(MARKET, price * 0.999, AT).tolist() == [1.0] * len(AT)
    assert trained(name).probability(MARKET, float(price[0]), float(AT[0])) < 1.0


@pytest.mark.parametrize(
    ("market", "max_price", "at", "said"),
    [
        ("m1.lrge/us-1a", 0.5, UNTIL, "did you mean 'm1.large/us-1a'"),
        (MARKET, -1.0, UNTIL, "max_price=-1: must be dollars"),
        (MARKET, float("nan"), UNTIL, "max_price=nan"),
        (MARKET, 0.5, BEGIN_UNIX_S + HOUR_S - 1, "an hour of"),
        (MARKET, 0.5, float("inf"), "seconds since 1970"),
    ],
)
def test_what_cannot_be_asked_is_named(market: str, max_price: float, at: float, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        trained("boosted").probability(market, max_price, at)


def test_a_model_for_each_market_refuses_others_and_ours_does_not() -> None:
    new = Prices({"x1.large/us-1a": spiky("x1.large/us-1a", 2, seed=9)})
    at = BEGIN_UNIX_S + DAY_S
    for name in ("logistic", "boosted"):
        trained(name)
    logistic, boosted = trained("logistic"), trained("boosted")
    with pytest.raises(SpecError, match="was not trained on it"):
        type(logistic)(new, UNTIL, logistic.models).probability("x1.large/us-1a", 0.5, at)  # type: ignore[attr-defined, call-arg]
    assert isinstance(boosted, Boosted)
    assert 0 < Boosted(new, UNTIL, boosted.trees, boosted.line).probability("x1.large/us-1a", 0.3, at) < 1


@each_model
def test_a_market_that_never_moves_has_a_small_probability(name: str, tmp_path: Path) -> None:
    flat = Prices({"f/z": PriceSeries("f/z", np.array([BEGIN_UNIX_S, BEGIN_UNIX_S + DAY_S]), np.array([1.0, 1.0]))})
    model = model_class(name).fit(flat, BEGIN_UNIX_S + 4 * DAY_S)
    model.save(tmp_path / "flat")
    loaded = load_revocation(tmp_path / "flat", flat)
    assert loaded.probability("f/z", 1.5, BEGIN_UNIX_S + 4 * DAY_S) < 0.02


@each_model
def test_too_little_to_learn_from_is_said(name: str) -> None:
    with pytest.raises(SpecError, match=r"until: no market has .* hours of prices"):
        model_class(name).fit(PRICES, BEGIN_UNIX_S + 3 * HOUR_S)


def test_files_that_are_no_models_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    np.save(tmp_path / "array.npy", np.zeros(3))
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    np.savez(tmp_path / "newer.npz", head=np.array(json.dumps({"format": "elastune revocation 99"})))
    half = {"format": FORMAT, "model": "boosted", "until_unix_s": 0.0}
    np.savez(tmp_path / "half.npz", head=np.array(json.dumps(half)), line=np.zeros(2))
    for name, said in (
        ("text", "is no model"),
        ("array.npy", "is no model"),
        ("other.npz", "is no model"),
        ("newer.npz", "another version"),
        ("half.npz", "missing or damaged"),
        ("none", "cannot be read"),
    ):
        with pytest.raises(SpecError, match=said):
            load_revocation(tmp_path / name, PRICES)
    with pytest.raises(SpecError, match="cannot be written"):
        trained("logistic").save(tmp_path / "no folder" / "model")
    with pytest.raises(SpecError, match="did you mean 'boosted'"):
        model_class("bosted")


def test_the_early_part_of_the_training_of_ours_knows_nothing_of_the_late_one() -> None:
    begin = training_times(PRICES, UNTIL)[MARKET][0]
    border = UNTIL - HELD_OUT * (UNTIL - begin)
    series = PRICES[MARKET]
    before = series.changed_unix_s < border
    times = np.append(series.changed_unix_s[before], border)
    risen = Prices({MARKET: PriceSeries(MARKET, times, np.append(series.usd_per_hour[before], 9.0))})
    (early, _), (as_early, _) = (_training_set(prices, UNTIL, 0) for prices in (Prices({MARKET: series}), risen))
    assert all(np.array_equal(one, another) for one, another in zip(early, as_early, strict=True))


def test_a_seed_may_be_larger_than_scikit_learn_takes() -> None:
    assert Boosted.fit(PRICES, BEGIN_UNIX_S + DAY_S, seed=2**40).until_unix_s == BEGIN_UNIX_S + DAY_S


def test_the_probability_of_ours_never_rises_with_the_maximum_price() -> None:
    ratios = np.geomspace(1.0, 6.0, 200)[:, None]
    at = UNTIL + np.arange(0.0, 23.0, 0.7) * HOUR_S
    found = trained("boosted").probabilities(MARKET, ratios * bids(at, 1.0), at)
    assert np.diff(found, axis=0).max() <= 1e-12
    assert (found[0] > found[-1] + 0.05).mean() > 0.9


def test_what_the_weights_of_the_classes_did_to_the_odds_is_undone() -> None:
    """A third of the hours that RevPred has learnt from have a revocation, and about that often it expects one."""
    model = trained("revpred")
    assert isinstance(model, RevPred)
    for market, at in training_times(PRICES, UNTIL).items():
        samples = model._samples(model.history(market), at, np.random.default_rng(0))
        expected = model.probabilities(market, samples.bids, samples.at).mean()
        assert 0.3 < samples.labels.mean() < 0.35
        assert expected == pytest.approx(samples.labels.mean(), abs=0.05)


def test_exported_trees_say_what_scikit_learn_says() -> None:
    ensemble = pytest.importorskip("sklearn.ensemble")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 4))
    y = x[:, 0] * x[:, 1] + x[:, 2] > rng.normal(size=3000)
    model = ensemble.HistGradientBoostingClassifier(max_iter=30, early_stopping=False).fit(x, y)
    assert from_sklearn(model).sum(x) == pytest.approx(model.decision_function(x), abs=1e-12)


def test_inputs_are_numbers_also_where_the_past_is_short() -> None:
    history = trained("boosted").history(MARKET)
    at = history.begin_unix_s + HOUR_S * np.array([1.0, 1.01, 2.0, 30.0])
    assert np.isfinite(inputs(history, Exceedance(history), history.price(at), at)).all()


def test_probabilities_of_ours_are_those_of_a_market_whose_hazard_is_known() -> None:
    prices = spiky_prices(days=40, markets=3)
    until = BEGIN_UNIX_S + 32 * DAY_S
    model = Boosted.fit(prices, until)
    samples = asked_samples(prices, MARKET, until, until + 7 * DAY_S)
    base = samples.history.price(samples.at) == samples.history.prices[0]
    found = model.probabilities(MARKET, samples.bids, samples.at)
    truth = spiky_truth(samples.bids / samples.history.price(samples.at))
    assert np.abs(found - truth)[base].mean() < 0.03
    best = score(samples.labels, np.where(base, truth, found))  # a week is short: the truth itself is off by something
    assert score(samples.labels, found).log_loss < best.log_loss + 0.01
    assert score(samples.labels, found).calibration_error < best.calibration_error + 0.02


def test_ours_and_logistic_regression_are_asked_without_the_packages_they_were_trained_with(tmp_path: Path) -> None:
    for name in ("boosted", "logistic"):
        trained(name).save(tmp_path / name)
    code = (
        "import sys\n"
        "for name in ('sklearn', 'scipy', 'torch'): sys.modules[name] = None\n"
        "from elastune.market.revocation import load_revocation\n"
        "from tests.market.test_revocation import PRICES, MARKET, UNTIL\n"
        f"for name in ('boosted', 'logistic'): print(load_revocation(f'{tmp_path}/{{name}}', PRICES)"
        ".probability(MARKET, 0.5, UNTIL))\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    expected = [trained(name).probability(MARKET, 0.5, UNTIL) for name in ("boosted", "logistic")]
    assert [float(each) for each in said] == pytest.approx(expected, abs=1e-12)


def test_a_package_that_is_missing_is_named_with_the_extra_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str, *args: Any, **kwargs: Any) -> Any:
        raise ImportError(name)

    monkeypatch.setattr("elastune.market.extras.import_module", absent)
    with pytest.raises(SpecError, match=r"needs scikit-learn.*elastune\[spot\]"):
        Boosted.fit(PRICES, UNTIL)
    monkeypatch.undo()
    real = builtins.__import__

    def without_torch(name: str, *args: Any, **kwargs: Any) -> Any:
        return absent(name) if name.partition(".")[0] == "torch" else real(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "elastune.market.recurrent", raising=False)
    monkeypatch.setattr(builtins, "__import__", without_torch)
    with pytest.raises(SpecError, match=r"need PyTorch.*elastune\[torch\]"):
        model_class("revpred").fit(PRICES, UNTIL)
