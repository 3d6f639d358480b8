"""A run as pandas tables, for notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from elastune.errors import ElastuneError
from elastune.messages import to_float
from elastune.record.projection import RunView
from elastune.reporting.tables import flat

if TYPE_CHECKING:
    import pandas as pd

TRIAL_COLUMNS = ["trial", "status", "iteration", "value", "best_value", "start", "end"]
REPORT_COLUMNS = ["trial", "at_s", "iteration"]


def dataframe(view: RunView) -> pd.DataFrame:
    """One row per trial; `start` and `end` in seconds since the run began."""
    _need_pandas("dataframe")
    import pandas as pd

    rows = [
        {
            "trial": trial.id,
            "status": trial.status,
            "iteration": trial.iteration,
            "value": trial.value,
            "best_value": trial.best_value,
            "start": trial.start_s,
            "end": trial.end_s,
        }
        | {f"config/{name}": value for name, value in flat(trial.config).items()}
        for trial in view.trials.values()
    ]
    return pd.DataFrame(rows, columns=None if rows else TRIAL_COLUMNS)


def reports_frame(view: RunView) -> pd.DataFrame:
    """One row per report that counts; the metrics are columns, the texts NaN and Infinity numbers again."""
    _need_pandas("reports_frame")
    import pandas as pd

    rows = []
    for trial in view.trials.values():
        for report in trial.reports:
            numbers = {name: value if (v := to_float(value)) is None else v for name, value in report.metrics.items()}
            place = {"trial": trial.id, "at_s": report.at_s, "iteration": report.iteration}
            rows.append(place | numbers | place)  # a metric named "iteration" must not replace ours
    return pd.DataFrame(rows, columns=None if rows else REPORT_COLUMNS)


def _need_pandas(what: str) -> None:
    try:
        import pandas  # noqa: F401
    except ImportError as error:
        raise ElastuneError(f'{what}() needs pandas, which is not installed: pip install "elastune[report]"') from error
