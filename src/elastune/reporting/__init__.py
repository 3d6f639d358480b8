"""What a run found and what it cost: tables, a progress line, data frames, and plots.

`elastune.reporting.plots` is imported by itself: it needs matplotlib, which not everyone has installed.
"""

from __future__ import annotations

from elastune.reporting.frame import dataframe, reports_frame
from elastune.reporting.ledger import ledger, ledger_dict, ledger_table
from elastune.reporting.progress import Progress
from elastune.reporting.tables import (
    best_table,
    devices_table,
    heading,
    summary,
    summary_dict,
    trial_dicts,
    trials_table,
)
from elastune.reporting.utilisation import utilisation, utilisation_dict

__all__ = [
    "Progress",
    "best_table",
    "dataframe",
    "devices_table",
    "heading",
    "ledger",
    "ledger_dict",
    "ledger_table",
    "reports_frame",
    "summary",
    "summary_dict",
    "trial_dicts",
    "trials_table",
    "utilisation",
    "utilisation_dict",
]
