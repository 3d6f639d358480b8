"""What spot machines have brought: how many came and went, and what they cost next to machines that stay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elastune.cost import SECONDS_PER_HOUR, MachineUse, cost_usd
from elastune.record.projection import RunView
from elastune.units import format_money


def spot_dict(view: RunView) -> dict[str, Any] | None:
    """None where all machines were alike. `on_demand_usd` is what the same machines would have cost there."""
    if not view.offers:
        return None
    spot = [use for use in view.machines if use.node in view.offers and view.offers[use.node].market == "spot"]
    others = [use for use in view.machines if use.node in view.offers and view.offers[use.node].market != "spot"]
    return {
        "spot_machines": len(spot),
        "on_demand_machines": len(others),
        "taken_away": sum(use.revoked or use.node in view.noticed for use in spot),
        "refunded": sum(use.revoked and use.cost_usd == 0 for use in spot),
        "cost_usd": cost_usd([*spot, *others]),
        "on_demand_usd": _on_demand_usd(view, [*spot, *others]),
    }


def spot_text(view: RunView) -> str | None:
    found = spot_dict(view)
    if found is None:
        return None
    parts = [f"{found['spot_machines']} machine{'s' * (found['spot_machines'] != 1)}"]
    parts.append(f"{found['taken_away']} taken away" if found["taken_away"] else "none taken away")
    if found["refunded"]:
        parts.append(f"{found['refunded']} refunded")
    if found["on_demand_machines"]:
        parts.append(f"{found['on_demand_machines']} on demand")
    if usual_usd := found["on_demand_usd"]:
        saved = round(1 - found["cost_usd"] / usual_usd, 2)
        beside = f"{abs(saved):.0%} {'above' if saved < 0 else 'below'}" if saved else "about"
        parts.append(f"{beside} the {format_money(usual_usd)} that these would cost on demand")
    return ", ".join(parts)


def _on_demand_usd(view: RunView, uses: list[MachineUse]) -> float | None:
    prices = view.started.experiment.get("market")
    if not isinstance(prices, Mapping):
        return None
    total_usd = 0.0
    for use in uses:
        held_s = max(use.to_s - use.from_s, use.minimum_s)
        total_usd += prices[view.offers[use.node].type] * held_s / SECONDS_PER_HOUR
    return total_usd
