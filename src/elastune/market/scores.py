"""How good predicted probabilities are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elastune.market.prices import Floats

BINS = 10
SURE = 1e-6
"""No probability counts as surer than this in the logarithmic loss."""
Labels = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Scores:
    """`majority` is the accuracy of always saying what is more frequent; its F1 is 0 where that is 'no'."""

    samples: int
    positives: float
    majority: float
    accuracy: float
    f1: float
    log_loss: float
    brier: float
    calibration_error: float


@dataclass(frozen=True, slots=True)
class Bin:
    """Samples whose predicted probabilities are near each other: what was said on average, and how often it was so."""

    predicted: float
    observed: float
    samples: int


def score(labels: Labels, probabilities: Floats, threshold: float = 0.5) -> Scores:
    """Accuracy and F1 are those of saying yes from the threshold on."""
    said = probabilities >= threshold
    positives = float(labels.mean())
    sure = np.clip(probabilities, SURE, 1 - SURE)
    return Scores(
        len(labels),
        positives,
        max(positives, 1 - positives),
        float((said == labels).mean()),
        _f1(float((said & labels).sum()), float(said.sum()), float(labels.sum())),
        float(-np.log(np.where(labels, sure, 1 - sure)).mean()),
        float(((probabilities - labels) ** 2).mean()),
        sum(bin.samples * abs(bin.predicted - bin.observed) for bin in calibration_curve(labels, probabilities))
        / len(labels),
    )


def calibration_curve(labels: Labels, probabilities: Floats) -> list[Bin]:
    """Ten bins of equal width, without those that are empty."""
    place = np.minimum((probabilities * BINS).astype(np.intp), BINS - 1)
    counts = np.bincount(place, minlength=BINS)
    said = np.bincount(place, probabilities, BINS)
    true = np.bincount(place, labels, BINS)
    return [Bin(float(s / n), float(t / n), int(n)) for n, s, t in zip(counts, said, true, strict=True) if n]


def best_threshold(labels: Labels, probabilities: Floats) -> float:
    """The one with the best F1, of all that make a difference."""
    order = np.argsort(-probabilities, kind="stable")
    ranked = probabilities[order]
    last = np.append(ranked[1:] != ranked[:-1], True)  # equal ones are said yes to together
    hits = np.cumsum(labels[order])
    f1 = 2 * hits / (np.arange(1, len(ranked) + 1) + labels.sum())
    return float(ranked[last][np.argmax(f1[last])])


def _f1(hits: float, said: float, true: float) -> float:
    return 2 * hits / (said + true) if said + true else 0.0
