"""How good predictors of revocations are, as tables for people and as plain dicts for machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from elastune.market.evaluation import ALL, Evaluation


def evaluation_table(found: Mapping[str, Evaluation]) -> RenderableType:
    """Two tables that fit into a narrow window: what was asked, and how well each model has answered. A row for each
    market; the last are all markets together.
    """
    asked = _table(("market",), "samples", "positive", "always\nno or yes")
    answered = _table(("market", "model"), "accuracy", "F1", "log\nloss", "Brier", "calib.\nerror")
    for market, same in next(iter(found.values())).scores.items():
        style = "bold" if market == ALL else None
        shares = f"{same.positives:.1%}", f"{same.majority:.1%}"
        asked.add_row(Text(market), str(same.samples), *shares, style=style)
        for name, evaluation in found.items():
            each = evaluation.scores[market]
            errors = (each.f1, each.log_loss, each.brier, each.calibration_error)
            cells = (f"{each.accuracy:.1%}", *(f"{error:.3f}" for error in errors))
            answered.add_row(Text(market), Text(name), *cells, style=style)
    note = "calib. error: calibration error, how far what is said is from how often it happens"
    return Group(asked, Text(), answered, Text(), Text(note, style="dim"))


def _table(names: tuple[str, ...], *numbers: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, collapse_padding=True)
    for name in names:
        # A market that is cut looks like another; the file of a model may take several lines.
        table.add_column(name, no_wrap=name == "market", overflow="fold", vertical="bottom", min_width=10)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def evaluation_dicts(found: Mapping[str, Evaluation]) -> dict[str, Any]:
    return {
        name: {
            "markets": {market: asdict(scores) for market, scores in each.scores.items()},
            "calibration": [asdict(bin) for bin in each.curve],
        }
        for name, each in found.items()
    }
