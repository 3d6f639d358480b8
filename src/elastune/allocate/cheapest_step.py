"""SpotTune's machines (Cai, Wang et al., ICPP 2020, Algorithm 1): each trial has one of its own, that on which its next
step should cost least.

    spotPool               `cloud.kinds`
    GETBESTINST            `_best`
    RANDOM(0.00001, 0.2)   `BIDS`, as a part of the price: dollars would only suit machines that cost about that; of
                           several the best is taken, because what is refunded is won with bids just above the price
    M[inst][hp]            `StepTimes`: C0 / CPUs until it was measured
    RevPredModel           `revocation`
    sCost                  `_step_usd`, by the mean price of the last hour, or the present one if that is higher
    one hour               `redeploy_s`

With a refund for machines that are taken away in their first hour a step costs M x (1 - p) x price in the paper, and
every trial moves after an hour, so that each hour may be a first one. A machine that goes has trained for less than
the hour, though: most go soon, and what was begun is lost. So here what is paid is divided by what is trained.
Without, a machine that is taken away only costs: the step is as much dearer as it takes longer, with the boot of the
next machine and what is lost of steps that are longer than the notice. A trial moves when that saves more than it
costs. There a machine whose trial is done is looked at too: it costs no boot, and goes to the next trial that waits
unless a new one is cheaper all the same.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from elastune.allocate.base import Allocator, Steps, Target, View
from elastune.allocate.step_times import StepTimes
from elastune.market.cloud import HOUR_S, PlayedCloud
from elastune.messages import Chosen, Offer
from elastune.spec import Terms, Width, require_int, require_number

BIDS = (0.00002, 0.5)
"""How far the most that is paid lies above the present price, as a part of that."""
PATIENCE_S = 300.0
"""So long a request may wait for its price, or for a machine to become free; then another choice is made."""
TAKEN_H = 0.2
"""How long a machine that is taken away within its first hour has trained what counts, about."""
IN_VAIN = 3
"""So many machines in a row may be chosen for a trial by what a step costs there, and bring it nowhere."""
UNKNOWN_STEPS = 3600
"""What a trial is thought to have left where nobody knows."""


class Revocation(Protocol):
    """What is known of being taken away: `elastune.market.revocation` has models of it."""

    def probabilities(self, market: str, max_prices: Sequence[float], at_unix_s: float) -> Iterable[float]: ...


@dataclass(slots=True)
class _Place:
    """A machine that was chosen for a trial, and the pool that it is alone in."""

    pool: int
    offer: Offer
    leaves: bool = False
    looked_s: float = -math.inf
    """When it was last asked whether it is better elsewhere."""


class CheapestStep(Allocator):
    """`revocation` says how likely a machine is taken away within the hour; None: never. With `on_demand` machines
    that cannot be taken away are looked at too; otherwise only where there is nothing else. So many `bids` are tried
    for each market; the paper tries one.
    """

    all_at_once = True

    def __init__(
        self,
        cloud: PlayedCloud,
        revocation: Revocation | None = None,
        on_demand: bool = True,
        seed: int = 0,
        redeploy_s: float = HOUR_S,
        bids: int = 8,
    ) -> None:
        require_number("redeploy_s", redeploy_s)
        require_int("bids", bids, 1)
        self.cloud, self.revocation, self.on_demand, self.redeploy_s = cloud, revocation, on_demand, redeploy_s
        self.bids = bids
        self._random = random.Random(seed)
        self._times = StepTimes({market: kind.speed for market, kind in cloud.kinds.items()})
        self._places: dict[str, _Place] = {}
        self._tried: dict[str, tuple[str, int]] = {}
        """What each trial has saved, and how many machines were chosen for it since."""
        self._pools = 0
        self._most = 1

    def setup(self, terms: Terms) -> None:
        self._most = self.places = terms.machines

    def stepped(self, steps: Steps) -> bool:
        place = self._places.get(steps.trial)
        if place is not None and steps.seconds > 0 and (not steps.first or not self._times.measured(steps.trial)):
            self._times.add(steps.trial, place.offer.type, steps.seconds / steps.number)
        return False

    def allocate(self, view: View, at_s: float) -> Target:
        left_over = self._forget(view, at_s)
        wake_s = self._move_on(view, at_s)
        waiting = self._to_place(view)
        free = {place.pool: (place.offer, self._risk(place.offer, at_s)) for place in left_over} if waiting else {}
        chosen = tuple(self._place(trial, free, view, at_s) for trial in waiting)
        if chosen:
            wake_s = min(wake_s, at_s + self._patience_s)
        widths: dict[str, Width] = {}
        for trial, place in self._places.items():
            # One that has failed keeps its machine, and goes on there when it is its time.
            if not place.leaves and (trial in view.widths or trial in view.waiting):
                widths[trial] = self.cloud.kind(place.offer.type).devices
        return Target(
            {place.pool: 1 for place in self._places.values() if not place.leaves},
            widths,
            wake_s if wake_s < math.inf else None,
            pools={trial: place.pool for trial, place in self._places.items()},
            offers={place.pool: place.offer for place in self._places.values()},
            chosen=chosen,
        )

    # -------------------------------------------------------------------------------------------------- who goes where

    def _forget(self, view: View, at_s: float) -> list[_Place]:
        """Trials that are gone need no machine; those whose machine is gone, is going or never came need another. The
        places of machines that others can have.
        """
        free: list[_Place] = []
        there = {*view.widths, *view.waiting, *view.failed()}
        self._tried = {trial: tried for trial, tried in self._tried.items() if trial in there}
        leaving = set(view.leaving())
        for trial, place in list(self._places.items()):
            holds = trial in view.widths
            lost = not holds and not view.machines(place.pool) and not view.awaited(place.pool)
            lost = lost or any(asked_s + self._patience_s <= at_s for asked_s in view.unserved(place.pool))
            if trial not in there or lost or (place.leaves and not holds) or (trial in leaving and not place.leaves):
                del self._places[trial]
                # With a refund the next hour should be a first one.
                if trial not in there and not place.leaves and not self.cloud.refund_s:
                    free += [place for machine in view.machines(place.pool) if not machine.trials]
        return free

    @property
    def _patience_s(self) -> float:
        return PATIENCE_S / self.cloud.pace

    def _move_on(self, view: View, at_s: float) -> float:
        """Those that have been on a machine for an hour leave it. When the next of them has, or has waited enough."""
        next_s, hour_s = math.inf, self.redeploy_s / self.cloud.pace
        for trial, place in self._places.items():
            next_s = min([next_s, *(asked_s + self._patience_s for asked_s in view.unserved(place.pool))])
            for machine in view.machines(place.pool):
                due_s = max(machine.billed_from_s, place.looked_s) + hour_s
                if at_s < due_s - 1e-6:
                    next_s = min(next_s, due_s)
                elif trial in view.widths and not place.leaves:
                    place.leaves = self._better_elsewhere(trial, place, at_s, view)
                    place.looked_s = at_s
                    if not place.leaves:
                        next_s = min(next_s, at_s + hour_s)
        return next_s

    def _better_elsewhere(self, trial: str, place: _Place, at_s: float, view: View) -> bool:
        """With a refund the next hour should be a first one. Without, moving takes a boot and what it costs."""
        if self.cloud.refund_s:
            return True
        here = self._step_usd(trial, place.offer, 0.0, at_s)
        best = min(self._step_usd(trial, offer, p, at_s) for offer, p in self._offers(trial, at_s))
        left = view.left(trial) or UNKNOWN_STEPS
        return best * (left + self._boot_steps(trial, place.offer)) < here * left

    def _boot_steps(self, trial: str, offer: Offer) -> float:
        """How many steps a trial could make while a machine boots."""
        return self.cloud.boot_s / max(self._times.step_s(trial, offer.type) * self.cloud.pace, 1e-9)

    def _to_place(self, view: View) -> Sequence[str]:
        """Those that wait, as many as may have a machine."""
        new = [trial for trial in view.waiting if trial not in self._places]
        return new[: max(0, self._most - len(self._places))]

    def _place(self, trial: str, free: dict[int, tuple[Offer, float]], view: View, at_s: float) -> Chosen:
        saved, number = self._tried.get(trial, ("", 0))
        number = number + 1 if saved == view.saved(trial) else 1
        self._tried[trial] = view.saved(trial), number
        if number > IN_VAIN:
            best = self._safest(trial, at_s)
        else:
            best = self._best(trial, list(free.values()), view.left(trial) or UNKNOWN_STEPS, at_s)
        best = view.chosen(trial) or best
        # The offer alone says whether a free machine is taken: a replay knows no more.
        pool = next((pool for pool, (offer, _) in free.items() if offer == best.offer), None)
        if pool is not None:
            del free[pool]
            self._places[trial] = _Place(pool, best.offer, looked_s=at_s)
        else:
            self._pools += 1
            self._places[trial] = _Place(self._pools, best.offer)
        return best

    # ---------------------------------------------------------------------------------------------- GETBESTINST

    def _best(self, trial: str, free: Sequence[tuple[Offer, float]], left: float, at_s: float) -> Chosen:
        """The cheapest that can be had, or that is free and does not have to boot."""

        def cheapest(offers: Iterable[tuple[Offer, float]]) -> Chosen:
            found = (Chosen(trial, offer, p, self._step_usd(trial, offer, p, at_s)) for offer, p in offers)
            return min(found, key=lambda chosen: chosen.step_usd)

        new = cheapest(self._offers(trial, at_s))
        if not free:
            return new
        here = cheapest(free)
        new_usd = new.step_usd * (left + self._boot_steps(trial, new.offer))
        return here if here.step_usd * left <= new_usd else new

    def _safest(self, trial: str, at_s: float) -> Chosen:
        """Where it is least likely to be interrupted again: its steps may be longer than machines last elsewhere. Of
        several such the one where a step costs least.
        """
        found = (
            Chosen(trial, offer, p, self._step_usd(trial, offer, p, at_s)) for offer, p in self._offers(trial, at_s)
        )
        return min(found, key=lambda chosen: (chosen.revoked_p, chosen.offer.market == "spot", chosen.step_usd))

    def _risk(self, offer: Offer, at_s: float) -> float:
        if offer.max_usd_per_hour is None:
            return 0.0
        ((_, p),) = self._revoked(offer.type, [offer.max_usd_per_hour], at_s)
        return p

    def _offers(self, trial: str, at_s: float) -> list[tuple[Offer, float]]:
        """What can be had, and how likely each is taken away within the hour."""
        spot: list[tuple[Offer, float]] = []
        for market in self.cloud.kinds:
            bids = self._draw(self.cloud.price(Offer(market, "spot"), at_s) / self.cloud.pace)
            if self.cloud.available(market, at_s):
                spot += [(Offer(market, "spot", bid), p) for bid, p in self._revoked(market, bids, at_s)]
        if self.on_demand or not spot:
            return [*spot, *((Offer(market), 0.0) for market in self.cloud.kinds)]
        return spot

    def _draw(self, price: float) -> list[float]:
        """The first as in the paper; of those beside it half are within 0.3% of the price."""
        low, high = BIDS
        parts = [self._random.uniform(low, high)]
        parts += [low * (high / low) ** self._random.random() for _ in range(self.bids - 1)]
        return [price * (1 + part) for part in parts]

    def _revoked(self, market: str, bids: list[float], at_s: float) -> Iterable[tuple[float, float]]:
        if self.revocation is None:
            return [(bids[0], 0.0)]
        found = self.revocation.probabilities(market, bids, self.cloud.unix_s(at_s))
        return zip(bids, map(float, found), strict=True)

    def _step_usd(self, trial: str, offer: Offer, p: float, at_s: float) -> float:
        """Equation 2, by what is trained; p is how likely the machine is taken away within the hour."""
        cloud, step_s = self.cloud, self._times.step_s(trial, offer.type)
        spot = offer.market == "spot"
        price = cloud.price(Offer(offer.type, offer.market), at_s) / cloud.pace
        if spot:  # the paper's is the mean of the last hour, which after a jump stays low for a while
            price = max(price, cloud.mean_price(offer.type, at_s))
        if spot and cloud.refund_s:
            return step_s * (1 - p) * price / (1 - p + p * TAKEN_H)
        lost_s = max(0.0, step_s * cloud.pace - cloud.notice_s) / 2
        return step_s * price * (1 + p * (cloud.boot_s + lost_s) / HOUR_S)
