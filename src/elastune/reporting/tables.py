"""A run as tables for people (rich) and as plain dicts for machines (`--json`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from elastune.record.projection import Busy, RunView, TrialView, busy_device_s
from elastune.reporting.forecast import forecast_dict, forecast_text
from elastune.reporting.spot import spot_dict, spot_text
from elastune.reporting.utilisation import utilisation
from elastune.units import format_device_time, format_duration, format_money

STYLES = {
    "running": "cyan",
    "waiting": "dim",
    "paused": "yellow",
    "completed": "green",
    "succeeded": "green",
    "stopped": "dim",
    "failed": "red",
    "deadline": "yellow",
    "budget": "yellow",
    "interrupted": "yellow",
    "info": "default",
    "warning": "yellow",
    "error": "red",
}
LONGEST_CELL = 24
MOST_CONFIG_COLUMNS = 8
MOST_NOTES = 10
LONGEST_STATUS = len("completed")


def summary(view: RunView) -> RenderableType:
    """How the run stands: what was found, with what means, and what should be known about it. Where experiments share
    the run, what each has found comes after that.
    """
    shared = len(view.experiments) > 1
    grid = _grid()
    grid.add_row("run", Text(view.started.name))
    grid.add_row("status", _status_text(view))
    if not shared:
        _add_found(grid, view)
    grid.add_row("trials", Text(counts_text(view)))
    grid.add_row("time", Text(used_text(format_duration, view.at_s, view.started.deadline_s)))
    grid.add_row("cost", Text(cost_text(view)))
    if (spot := spot_text(view)) is not None:
        grid.add_row("spot", Text(spot))
    if (forecast := forecast_text(view)) is not None:
        grid.add_row("forecast", Text(forecast))
    grid.add_row("devices", Text(_devices_text(view)))
    parts: list[RenderableType] = [grid]
    for name in view.experiments if shared else ():
        parts += ["", heading(name), _found(view.only(name))]
    if view.notes:
        parts += [""] * shared + [notes(view)]
    return Group(*parts) if len(parts) > 1 else grid


def heading(experiment: str) -> Text:
    """What comes after it is of one of the experiments that share the run."""
    return Text(f"experiment {experiment}", "bold underline")


def _found(view: RunView) -> RenderableType:
    grid = _grid()
    grid.add_row("status", _status_text(view))
    _add_found(grid, view)
    grid.add_row("trials", Text(counts_text(view)))
    return grid


def _add_found(grid: Table, view: RunView) -> None:
    grid.add_row("best", Text(best_text(view)))
    if view.best and view.best.best_config:
        grid.add_row("with", Text(config_text(view.best.best_config)))


def _status_text(view: RunView) -> Text:
    status = Text(view.status, STYLES[view.status])
    return status.append(f": {view.reason}", "default") if view.reason else status


def _grid() -> Table:
    """Names and what they stand for."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column()
    return grid


def trials_table(view: RunView, limit: int | None = None) -> RenderableType:
    """The trials, best first, with the part of their configuration in which they differ."""
    shown = ranked(view)[:limit]
    configs = {trial.id: flat(trial.best_config or trial.config) for trial in shown}
    columns = _varying(list(configs.values()))
    table = _table("trial", "status", ">iter", f">best {view.started.metric}")
    for column in columns[:MOST_CONFIG_COLUMNS]:
        table.add_column(Text(_cut(column)), justify="right", no_wrap=True)
    for trial in shown:
        cells = [Text(_cut(cell_text(configs[trial.id].get(c)))) for c in columns[:MOST_CONFIG_COLUMNS]]
        value, iteration = number(trial.best_value), str(trial.iteration)
        table.add_row(Text(trial.id), Text(trial.status, STYLES[trial.status]), iteration, value, *cells)
    for leading, width in ((0, max((len(trial.id) for trial in shown), default=0)), (1, LONGEST_STATUS), (3, 8)):
        table.columns[leading].min_width = width  # on a narrow screen the configuration is cut first
    more = []
    if len(shown) < len(view.trials):
        more.append(f"{len(shown)} of {len(view.trials)} trials shown")
    if len(columns) > MOST_CONFIG_COLUMNS:
        more.append(f"{len(columns) - MOST_CONFIG_COLUMNS} more parameters vary")
    return Group(table, Text("; ".join(more), "dim")) if more else table


def best_table(view: RunView) -> RenderableType:
    """Each improvement: when it came, what had been spent by then, and who made it."""
    table = _table(">time", ">cost", f">best {view.started.metric}", "trial", ">iteration")
    for point in view.best_so_far:
        spent, value = format_money(point.cost_usd), number(point.value)
        table.add_row(format_duration(point.at_s), spent, value, Text(point.trial), str(point.iteration))
    return table


def devices_table(view: RunView) -> RenderableType:
    """How each machine was used: the timeline as numbers."""
    busy: dict[str, list[Busy]] = {}
    for segment in view.segments():
        busy.setdefault(segment.slot.node, []).append(segment)
    table = _table("machine", ">devices", ">from", ">until", ">starts", ">busy")
    for use in view.machines:
        on_it = busy.get(use.node, [])
        held_device_s = use.devices * (use.to_s - use.from_s)
        share = f"{busy_device_s(on_it) / held_device_s:.0%}" if held_device_s > 0 else "-"
        times = format_duration(use.from_s), format_duration(use.to_s)
        table.add_row(use.node, str(use.devices), *times, str(len(on_it)), share)
    return table


def notes(view: RunView) -> RenderableType:
    """The newest things the user should know."""
    lines = [
        Text(f"{note.level}: ", STYLES[note.level]).append(note.text, "default") for note in view.notes[-MOST_NOTES:]
    ]
    if len(view.notes) > MOST_NOTES:
        lines.insert(0, Text(f"{len(view.notes) - MOST_NOTES} earlier notes are in the journal", "dim"))
    return Group(*lines)


def _table(*columns: str) -> Table:
    """Plain columns; one whose name begins with > is aligned to the right."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        right = column.startswith(">")
        table.add_column(column.removeprefix(">"), justify="right" if right else "left", no_wrap=True)
    return table


def summary_dict(view: RunView) -> dict[str, Any]:
    """Where experiments share the run, `experiments` has what each has found."""
    started, use = view.started, utilisation(view)
    shared = len(view.experiments) > 1
    return {
        "name": started.name,
        "status": view.status,
        "reason": view.reason,
        **({"experiments": {name: _found_dict(view.only(name)) for name in view.experiments}} if shared else {}),
        **({} if shared else _goal_dict(view)),
        "trials": dict(view.counts()),
        "retrained": view.retrained,
        "time_s": view.at_s,
        "deadline_s": started.deadline_s,
        "cost_usd": view.cost_usd(),
        "budget_usd": started.budget_usd,
        "paid_device_s": view.paid_device_s(),
        "budget_device_s": started.budget_device_s,
        "forecast": forecast_dict(view),
        "machines": len(view.machines),
        **({} if (spot := spot_dict(view)) is None else {"spot": spot}),
        "busy_device_s": use.busy_device_s,
        "utilisation": use.busy,
        "notes": [{"level": note.level, "text": note.text} for note in view.notes],
    }


def _found_dict(view: RunView) -> dict[str, Any]:
    return {
        "status": view.status,
        "reason": view.reason,
        **_goal_dict(view),
        "trials": dict(view.counts()),
        "retrained": view.retrained,
    }


def _goal_dict(view: RunView) -> dict[str, Any]:
    started, best = view.started, view.best
    return {
        "metric": started.metric,
        "mode": started.mode,
        "seed": started.seed,
        "best": None
        if best is None
        else {
            "trial": best.id,
            "value": best.best_value,
            "iteration": best.best_iteration,
            "config": best.best_config,
            **({"why": best.verdict} if best.verdict else {}),
        },
    }


def trial_dicts(view: RunView) -> list[dict[str, Any]]:
    """The trials, best first."""
    return [
        {
            "trial": trial.id,
            "status": trial.status,
            "reason": trial.reason,
            "iteration": trial.iteration,
            "value": trial.value,
            "best_value": trial.best_value,
            "best_iteration": trial.best_iteration,
            "config": trial.config,
            "best_config": trial.best_config,
            "attempts": trial.attempts,
            "failures": len(trial.failures),
            "losses": trial.losses,
            "error": trial.failures[-1].error if trial.failures else None,
            "checkpoint": trial.last_checkpoint.path if trial.last_checkpoint else None,
            "best_checkpoint": trial.best_checkpoint.path if trial.best_checkpoint else None,
            "start_s": trial.start_s,
            "end_s": trial.end_s,
        }
        for trial in ranked(view)
    ]


# ----------------------------------------------------------------------------------- shared with progress and frames


def ranked(view: RunView) -> list[TrialView]:
    """Best first; those without a value last; equals in order of appearance. Who was judged to be the best is."""
    sign = 1 if view.started.mode == "min" else -1

    def rank(trial: TrialView) -> tuple[bool, float]:
        return not trial.judged, math.inf if trial.best_value is None else sign * trial.best_value

    return sorted(view.trials.values(), key=rank)


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested configurations with dotted names: {"model": {"layers": 2}} as {"model.layers": 2}."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.5g}"


def cell_text(value: Any) -> str:
    return number(value) if isinstance(value, float) else "-" if value is None else str(value)


def config_text(config: Mapping[str, Any]) -> str:
    return "  ".join(f"{name}={cell_text(value)}" for name, value in flat(config).items())


def best_text(view: RunView) -> str:
    if len(view.experiments) > 1:
        return "; ".join(f"{name}: {best_text(view.only(name))}" for name in view.experiments)
    if view.best is None:
        return f"no {view.started.metric} reported yet"
    best = view.best
    why = f" ({best.verdict})" if best.verdict else ""
    return f"{view.started.metric} {number(best.best_value)} by {best.id} at iteration {best.best_iteration}{why}"


def counts_text(view: RunView) -> str:
    return ", ".join(f"{count} {status}" for status, count in view.counts().items()) or "none yet"


def used_text(unit: Callable[[float], str], used: float, limit: float | None) -> str:
    return unit(used) if limit is None else f"{unit(used)} of {unit(limit)}"


def cost_text(view: RunView) -> str:
    """In dollars, and as time on devices where the budget is given so."""
    started = view.started
    money = used_text(format_money, view.cost_usd(), started.budget_usd)
    if started.budget_device_s is None:
        return money
    return f"{used_text(format_device_time, view.paid_device_s(), started.budget_device_s)} ({money})"


def _devices_text(view: RunView) -> str:
    use = utilisation(view)
    if use.busy is None:
        return "none yet"
    machines = len({device.machine for device in use.devices})
    booting = f", booting {use.booting:.0%}" if use.booting else ""
    on = f"on {machines} machine{'s' * (machines != 1)}"
    return f"busy {use.busy:.0%} of the time they were paid for{booting}, {on}"


def _varying(configs: list[dict[str, Any]]) -> list[str]:
    """The parameters in which the trials differ; a single trial shows all it has."""
    names = dict.fromkeys(name for config in configs for name in config)
    if len(configs) == 1:
        return list(names)
    return [name for name in names if len({cell_text(config.get(name)) for config in configs}) > 1]


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_CELL else text[: LONGEST_CELL - 1] + "…"
