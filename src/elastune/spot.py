"""Spot machines as a user asks for them: which types, what they have cost, and how to go about it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from elastune.algorithm.base import Algorithm
from elastune.allocate.base import Allocator
from elastune.errors import Infeasible, SpecError, did_you_mean
from elastune.market.cloud import Kind, PlayedCloud
from elastune.market.prices import Prices, PriceSeries, format_date, format_date_from, split_market
from elastune.profile.catalog import catalog
from elastune.spec import Limits, require_int, require_number
from elastune.units import format_duration, parse_duration, parse_hourly_price

if TYPE_CHECKING:
    from elastune.market.revocation import Revocation

log = logging.getLogger("elastune")

POLICIES = ("cheapest-step", "never-late")
PAST_S, DAYS = 7 * 86_400.0, 21.0
"""So much of a market that is made up is past when the run begins, and so long is it."""
USUAL_TYPES = ("m5.xlarge", "m5.4xlarge", "c5.4xlarge")
FASTEST_PACE = 1_000_000
OF_A_TYPE = {"price", "speed"}


@dataclass(frozen=True)
class Spot:
    """Machines that may be taken away, at the price of the moment.

    `types` are machine types of the catalog, or a mapping from a type to `{price: what it costs on demand, speed: how
    fast it trains next to the others}`; with a zone (m5.xlarge/us-east-1a) only that one. `prices` is a file of what
    they have cost, which is played back from `begin` on, a date; without one a market is made up. A machine is taken
    away `notice` after its price has risen above what is offered. With `refund` it costs nothing if that is within its
    first hour, as it was with AWS once.

    `policy` is "cheapest-step" (SpotTune: each trial has the machine on which its next step should cost least; usual
    without a deadline) or "never-late" (the deadline is kept whatever the market does). `revocation` is a model that
    `elastune revocation train` has made, or the name of one to be trained on what is past when the run begins; "auto":
    "boosted", where the policy asks one, which "never-late" does not; None: machines are chosen by price alone. `pace`
    plays the market so many times as fast, to rehearse days in minutes.
    """

    types: Sequence[str] | Mapping[str, Mapping[str, Any]] = USUAL_TYPES
    prices: str | Path | Prices | None = None
    begin: str | datetime | None = None
    policy: Literal["cheapest-step", "never-late"] | None = None
    revocation: str | Path | None = "auto"
    on_demand: bool = True
    notice: str | float = "2m"
    refund: bool = False
    boot: str | float = "60s"
    pace: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.types, str) or not isinstance(self.types, Sequence | Mapping) or not self.types:
            raise SpecError(
                f"types={self.types!r}: must be a list of at least one machine type, such as [m5.xlarge, m5.4xlarge]"
            )
        if self.policy is not None and self.policy not in POLICIES:
            raise SpecError(f"policy={self.policy!r}: {did_you_mean(str(self.policy), POLICIES)}")
        for name in ("refund", "on_demand"):
            if not isinstance(getattr(self, name), bool):
                raise SpecError(f"{name}={getattr(self, name)!r}: must be true or false")
        require_number("pace", self.pace)
        if self.pace > FASTEST_PACE:
            raise SpecError(f"pace={self.pace!r}: must be at most {FASTEST_PACE:,}: a year in half a minute")
        require_int("seed", self.seed, 0)
        for name in self.types:
            if not isinstance(name, str):
                raise SpecError(f"types: {name!r} must be the name of a machine type, such as m5.xlarge")
        if not isinstance(self.prices, str | Path | Prices | None):
            raise SpecError(f"prices={self.prices!r}: must be a file of prices")
        if not isinstance(self.begin, str | date | None):
            raise SpecError(f"begin={self.begin!r}: must be a date such as 2016-04-12 or 2016-04-12T08:00")
        if not isinstance(self.revocation, str | Path | None):
            raise SpecError(f"revocation={self.revocation!r}: must be the name of a model, or a file that holds one")

    @cached_property
    def cloud(self) -> PlayedCloud:
        """The market as it is played back."""
        kinds = {name: self._kind(name) for name in self.types}
        prices = self._prices(kinds)
        markets = {
            market: kinds.get(market, kind)  # what is said of one zone counts there
            for name, kind in kinds.items()
            for market in prices
            if market == name or split_market(market)[0] == name
        }
        for name in kinds:
            if not any(name in (market, split_market(market)[0]) for market in markets):
                raise SpecError(f"types: there are no prices of {name!r}; {did_you_mean(name, prices)}")
        return PlayedCloud(
            markets,
            prices,
            begin_unix_s=self._begin_unix_s([prices[market] for market in markets]),
            pace=self.pace,
            notice_s=parse_duration(self.notice, "notice", zero=True),
            refund_s=3600.0 if self.refund else 0.0,
            boot_s=parse_duration(self.boot, "boot", zero=True),
        )

    def keeps_deadline(self, limits: Limits) -> bool:
        return (self.policy or ("cheapest-step" if limits.deadline_s is None else "never-late")) == "never-late"

    def allocator(self, algorithm: Algorithm, limits: Limits, seed: int, unsaved_s: float) -> Allocator:
        """What decides about machines. `unsaved_s` is how old the last checkpoint of a trial may be."""
        if self.keeps_deadline(limits):
            from elastune.allocate.in_time import InTime

            if limits.deadline_s is None:
                raise SpecError("policy='never-late' without a deadline: give one, or take 'cheapest-step'")
            if self.revocation not in ("auto", None):
                raise SpecError(
                    f"revocation={str(self.revocation)!r}: policy='never-late', which a deadline implies, asks no "
                    "model: leave it out, or take policy='cheapest-step', which promises no deadline"
                )
            if not self.on_demand:
                raise SpecError(
                    "on_demand=False: a deadline is kept with on-demand machines: leave it out, or take "
                    "policy='cheapest-step', which promises no deadline"
                )
            stages = algorithm.stages()
            if stages is None:
                raise SpecError(
                    "policy='never-late', which a deadline implies unless another is given: "
                    f"{type(algorithm).__name__} does not say before the run how much it trains, so no deadline can be "
                    "promised: take SuccessiveHalving, Hyperband, SpotTune, FIFO(n, R) or policy='cheapest-step'"
                )
            boot_s = self.cloud.boot_s / self.cloud.pace
            if limits.deadline_s <= boot_s:
                raise Infeasible(
                    f"deadline={format_duration(limits.deadline_s)}: a machine takes {format_duration(boot_s)} to "
                    "boot, so that nothing would be trained by then: give a later one"
                )
            return InTime(self.cloud, stages, limits.deadline_s, unsaved_s=unsaved_s)
        from elastune.allocate.cheapest_step import CheapestStep

        return CheapestStep(self.cloud, self._model(), self.on_demand, seed)

    # -------------------------------------------------------------------------------------------------------- parts

    def _kind(self, name: str) -> Kind:
        kind, _ = split_market(str(name))
        known = next((each for each in catalog() if each.name == kind), None)
        given: Any = self.types[name] if isinstance(self.types, Mapping) else {}
        given = {} if given is None else given
        if not isinstance(given, Mapping):
            raise SpecError(f"types.{name}={given!r}: must be a mapping with price and speed")
        if unknown := [key for key in given if key not in OF_A_TYPE]:
            raise SpecError(f"types.{name}: unknown field {unknown[0]!r}: {did_you_mean(str(unknown[0]), OF_A_TYPE)}")
        if known is None and "price" not in given:
            names = [each.name for each in catalog()]
            raise SpecError(
                f"types: {name!r} is not in the catalog: say what it costs on demand, {{{name}: {{price: $0.80, speed: "
                f"16}}}}; {did_you_mean(kind, names)}"
            )
        price = parse_hourly_price(given["price"], f"types.{name}.price") if "price" in given else None
        if "speed" in given:
            require_number(f"types.{name}.speed", given["speed"])
        assert known is not None or price is not None
        usual_usd, usual_speed = (known.price_usd_per_hour, float(known.devices)) if known else (price or 0.0, 1.0)
        return Kind(usual_usd if price is None else price, given.get("speed", usual_speed))

    def _prices(self, kinds: Mapping[str, Kind]) -> Prices:
        if isinstance(self.prices, Prices):
            return self.prices
        if self.prices is not None:
            from elastune.market.price_file import load_prices

            return load_prices(Path(self.prices), types=sorted({split_market(name)[0] for name in kinds}))
        from elastune.market.synthetic_prices import synthetic_prices

        usd = {split_market(name)[0]: kind.on_demand_usd_per_hour for name, kind in kinds.items()}
        return synthetic_prices(usd, DAYS, seed=self.seed)

    def _begin_unix_s(self, markets: Sequence[PriceSeries]) -> float:
        latest = max(markets, key=lambda series: series.begin_unix_s)
        first, last = latest.begin_unix_s, max(series.end_unix_s for series in markets)
        if self.begin is None:
            return min(first + PAST_S, (first + last) / 2)
        begin = self.begin
        if isinstance(begin, str):
            try:
                begin = datetime.fromisoformat(begin)
            except ValueError:
                raise SpecError(
                    f"begin={self.begin!r}: must be a date such as 2016-04-12 or 2016-04-12T08:00"
                ) from None
        at = datetime(begin.year, begin.month, begin.day, tzinfo=UTC) if not isinstance(begin, datetime) else begin
        unix_s = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
        if last <= first + 3600.0:
            raise SpecError(
                f"begin={self.begin}: prices of {latest.market} begin on {format_date(first)}, and an hour later there "
                "are no more: leave that market out of types, or give a longer record"
            )
        if not first + 3600.0 <= unix_s < last:
            raise SpecError(
                f"begin={self.begin}: must be between {format_date_from(first + 3600.0)}, an hour after the first "
                f"price of {latest.market}, and {format_date(last)}, where prices end"
            )
        return unix_s

    def _model(self) -> Revocation | None:
        if self.revocation is None:
            return None
        from elastune.market.revocation import MODELS, load_revocation, model_class
        from elastune.market.samples import TooFewPrices

        prices = self.cloud.prices
        assert prices is not None
        name = "boosted" if self.revocation == "auto" else self.revocation
        if isinstance(name, str) and name in MODELS:
            begin = self.cloud.begin_unix_s
            try:
                model = model_class(name).fit(prices, begin, self.seed)
            except TooFewPrices as error:
                why = str(error).removeprefix("until: ").replace("a later time", "a later begin")
                raise SpecError(f"begin={format_date(begin)}: {why}, or revocation: null") from None
        elif isinstance(name, str) and not Path(name).is_file():
            raise SpecError(
                f"revocation={name!r}: there is no such file, nor a model of that name: "
                f"{did_you_mean(name, ('auto', *MODELS))}, or null to choose by price alone"
            )
        else:
            model = load_revocation(Path(name), prices)
            if model.until_unix_s > self.cloud.begin_unix_s:
                log.warning(
                    "revocation=%r: was trained on prices until %s, and is asked from %s on: if they were those that "
                    "are played, it has seen what is to come, and the run seems better than it would be",
                    *(str(name), format_date(model.until_unix_s), format_date(self.cloud.begin_unix_s)),
                )
        self._check_asked(model, prices)
        return model

    def _check_asked(self, model: Revocation, prices: Prices) -> None:
        """Refuse what the model could not be asked about once the run has begun."""
        begin = self.cloud.begin_unix_s
        for market in self.cloud.kinds:
            if not model.knows(market):
                raise SpecError(
                    f"revocation={str(self.revocation)!r}: was not trained on {market}: leave that market out of "
                    "types, or train a model on its prices"
                )
            if begin < prices[market].begin_unix_s + 3600.0:
                raise SpecError(
                    f"begin: the run begins on {format_date(begin)}, prices of {market} on "
                    f"{format_date(prices[market].begin_unix_s)}: a model must know an hour of them before: give a "
                    "later begin, older prices, or revocation: null"
                )
