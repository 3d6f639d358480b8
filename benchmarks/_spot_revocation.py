"""Who predicts revocations best: RevPred, Tributary's predictor, logistic regression or ours.

60 days of auction-era prices, split by time: trained on the first 45 days, judged every ten minutes of the rest. The
markets: of each machine type the one whose price changes most often in the training time, for the twelve types with
most changes. Bids are the price and a random part of it on top, up to as much again, the same for all models.

Beside RevPred as it is printed, trained with bids on the border (Algorithm 2), stands its network trained with random
bids. F1 is given at 0.5, as in the paper, and at the threshold with the best F1 on the last ten days of the training
time; that rule is the same for all. Settings of all models were chosen by validation inside the training time.

    python benchmarks/_spot_revocation.py [--quick]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar

import numpy as np
from _data import data_folder
from _figures import Figure, print_figures

from elastune.market.boosted import Boosted
from elastune.market.features import DAY_S, History, border_bids, random_bids
from elastune.market.logistic import Logistic
from elastune.market.price_file import load_prices
from elastune.market.prices import Floats, Prices, split_market
from elastune.market.revocation import Revocation
from elastune.market.revpred import RevPred
from elastune.market.samples import Samples, asked_samples, labelled
from elastune.market.scores import Scores, best_threshold, score
from elastune.market.tributary import Tributary

FILE = "spot_2016_useast1/prices.csv.gz"
TRAIN_DAYS, THRESHOLD_DAYS = 45, 10
TYPES = 12
QUICK = ("g2.8xlarge/us-east-1a", "hi1.4xlarge/us-east-1a", "m4.4xlarge/us-east-1b")


class RevPredRandom(RevPred):
    """RevPred's network, weights and equation 3, with random bids in training too."""

    name: ClassVar[str] = "revpred, random bids"

    @classmethod
    def _samples(cls, history: History, at: Floats, rng: np.random.Generator) -> Samples:
        return labelled(history, at, random_bids(history, at, rng))


MODELS: Mapping[str, type[Revocation]] = {
    "ours (boosted)": Boosted,
    "RevPred": RevPred,
    "RevPred, random bids": RevPredRandom,
    "Tributary": Tributary,
    "logistic": Logistic,
}


@dataclass(frozen=True, slots=True)
class Study:
    """Of each model, by name: the scores of all markets together, at 0.5 and at the threshold chosen in training time,
    those at 0.5 for bids on the border, and those of every market at 0.5.
    """

    at_half: dict[str, Scores]
    at_chosen: dict[str, Scores]
    thresholds: dict[str, float]
    at_border: dict[str, Scores]
    by_market: dict[str, dict[str, Scores]]


def busiest(prices: Prices, until_unix_s: float) -> list[str]:
    """Of each type the market that changes most often, and of these the first so many."""
    changes = {market: int(np.sum(series.changed_unix_s < until_unix_s)) for market, series in prices.items()}
    by_type: dict[str, str] = {}
    for market in sorted(prices, key=lambda market: -changes[market]):
        by_type.setdefault(split_market(market)[0], market)
    return sorted(list(by_type.values())[:TYPES])


def study(prices: Prices, markets: Sequence[str]) -> Study:
    begin = min(series.begin_unix_s for series in prices.values())
    end = max(series.end_unix_s for series in prices.values())
    until = begin + TRAIN_DAYS * DAY_S
    known = Prices({market: prices[market] for market in markets})
    asked = {market: asked_samples(prices, market, until, end) for market in markets}
    before = {market: asked_samples(prices, market, until - THRESHOLD_DAYS * DAY_S, until) for market in markets}
    border = {m: labelled(s.history, s.at, border_bids(s.history, s.at)) for m, s in asked.items()}
    result = Study({}, {}, {}, {}, {})
    for name, kind in MODELS.items():
        begin_s = time.perf_counter()
        model = kind.fit(prices if kind is Boosted else known, until)
        print(f"trained {name} in {time.perf_counter() - begin_s:.0f} s", flush=True)
        said = {market: ask(model, each) for market, each in asked.items()}
        threshold = best_threshold(labels(before), np.concatenate([ask(model, each) for each in before.values()]))
        together = np.concatenate(list(said.values()))
        result.at_half[name] = score(labels(asked), together)
        result.at_chosen[name] = score(labels(asked), together, threshold)
        result.thresholds[name] = threshold
        result.at_border[name] = score(labels(border), np.concatenate([ask(model, each) for each in border.values()]))
        result.by_market[name] = {market: score(asked[market].labels, said[market]) for market in markets}
        if kind is RevPred:
            print_directions(model, border)
    return result


def ask(model: Revocation, samples: Samples) -> Floats:
    return model.probabilities(samples.history.market, samples.bids, samples.at)


def labels(samples: Mapping[str, Samples]) -> np.ndarray:
    return np.concatenate([each.labels for each in samples.values()])


def print_directions(model: Revocation, border: Mapping[str, Samples]) -> None:
    """Equation 3 in both directions, and without it, on bids such as those of the training."""
    assert isinstance(model, RevPred)
    kept, printed, plain, truth = [], [], [], []
    for market, samples in border.items():
        share = float(model.models[market]["positives"])
        probability = np.clip(ask(model, samples), 1e-9, 1 - 1e-9)
        odds, factor = probability / (1 - probability), (1 - share) / share
        kept.append(probability)
        plain.append(odds * factor / (1 + odds * factor))
        printed.append(odds * factor**2 / (1 + odds * factor**2))
        truth.append(samples.labels)
    errors = [score(np.concatenate(truth), np.concatenate(each)).calibration_error for each in (kept, plain, printed)]
    print(
        "RevPred on border bids, calibration error: {:.3f} with odds times φ+/φ- (kept), {:.3f} as the network says, "
        "{:.3f} with φ-/φ+ as printed".format(*errors)
    )
    at_price = np.mean(np.concatenate([each.bids == each.history.price(each.at) for each in border.values()]))
    print(f"the border bid is the price itself at {at_price:.0%} of the times")


def print_study(result: Study, markets: Sequence[str]) -> None:
    first = next(iter(result.at_half.values()))
    print(f"\nall {len(markets)} markets: {first.samples} samples, {first.positives:.1%} positive")
    columns = ("accuracy", "F1 at 0.5", "by market", "log loss", "Brier", "ECE", "threshold", "F1 there", "accuracy")
    print(f"{'':24}" + "".join(f"{column:>11}" for column in columns))
    print(f"{'always no':24}{first.majority:11.3f}{0.0:11.3f}")
    for name, half in result.at_half.items():
        there, threshold = result.at_chosen[name], result.thresholds[name]
        mean_f1 = fmean(each.f1 for each in result.by_market[name].values())
        values = (half.accuracy, half.f1, mean_f1, half.log_loss, half.brier, half.calibration_error, threshold)
        print(f"{name:24}" + "".join(f"{value:11.3f}" for value in (*values, there.f1, there.accuracy)))
    first = next(iter(result.at_border.values()))
    print(f"\nbids on the border: {first.positives:.1%} positive, always the same {first.majority:.3f}")
    for name, scores in result.at_border.items():
        print(
            f"{name:24} accuracy {scores.accuracy:.3f}, F1 {scores.f1:.3f}, log loss {scores.log_loss:.3f}, "
            f"ECE {scores.calibration_error:.3f}"
        )
    print("\nby market: accuracy and F1 at 0.5, log loss")
    print(f"{'':24}{'positive':>9}{'always no':>10}" + "".join(f"{name:>24}" for name in result.by_market))
    for market in markets:
        rows = [by[market] for by in result.by_market.values()]
        cells = "".join(f"{row.accuracy:12.3f}{row.f1:6.2f}{row.log_loss:6.2f}" for row in rows)
        print(f"{market:24}{rows[0].positives:9.3f}{rows[0].majority:10.3f}{cells}")


def figures(result: Study) -> list[Figure]:
    f1 = {name: round(scores.f1, 3) for name, scores in result.at_half.items()}
    ours, revpred, tributary = f1.pop("ours (boosted)"), f1["RevPred"], f1["Tributary"]
    best = max(f1.values())
    return [
        Figure("revocation_f1_ours", ours, best, round(ours / best, 3), "> the best of the others'", ours > best),
        Figure("revocation_f1_revpred", revpred, tributary, None, "> Tributary's", revpred > tributary),
        Figure("revocation_f1_tributary", tributary, None, None, "none: for comparison", True),
    ]


def run(quick: bool) -> list[Figure]:
    prices = load_prices(data_folder(FILE) / FILE)
    until = min(series.begin_unix_s for series in prices.values()) + TRAIN_DAYS * DAY_S
    markets = list(QUICK) if quick else busiest(prices, until)
    if quick:
        prices = Prices({market: prices[market] for market in prices if split_market(market)[0] in QUICK_TYPES})
    result = study(prices, markets)
    print_study(result, markets)
    return figures(result)


QUICK_TYPES = {split_market(market)[0] for market in QUICK}


if __name__ == "__main__":
    if "--quick" in sys.argv[1:]:
        print("--quick: three markets in place of twelve, and ours learns from their types only")
    print_figures(run("--quick" in sys.argv[1:]))
