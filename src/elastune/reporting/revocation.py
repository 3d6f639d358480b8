"""How good predictors of revocations are, as a table for people and as plain dicts for machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.table import Table
from rich.text import Text

from elastune.market.evaluation import ALL, Evaluation

COLUMNS = ("samples", "positive", "always no or yes", "accuracy", "F1", "log loss", "Brier", "calibration error")


def evaluation_table(found: Mapping[str, Evaluation]) -> Table:
    """A row for each market and model; the last rows are all markets together."""
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("market", "model"):
        table.add_column(column)
    for column in COLUMNS:
        table.add_column(column, justify="right")
    for market in next(iter(found.values())).scores:
        for name, evaluation in found.items():
            each = evaluation.scores[market]
            shares = f"{each.positives:.1%}", f"{each.majority:.1%}", f"{each.accuracy:.1%}"
            errors = (each.f1, each.log_loss, each.brier, each.calibration_error)
            cells = [str(each.samples), *shares, *(f"{error:.3f}" for error in errors)]
            table.add_row(Text(market), Text(name), *cells, style="bold" if market == ALL else None)
    return table


def evaluation_dicts(found: Mapping[str, Evaluation]) -> dict[str, Any]:
    return {
        name: {
            "markets": {market: asdict(scores) for market, scores in each.scores.items()},
            "calibration": [asdict(bin) for bin in each.curve],
        }
        for name, each in found.items()
    }
