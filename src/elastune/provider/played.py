"""Spot machines rehearsed on this computer: real raylets that come, cost and are taken away as a market once had it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec

from elastune.errors import SpecError
from elastune.market.cloud import PlayedCloud
from elastune.messages import Offer
from elastune.provider.base import Machine
from elastune.provider.local import Local


class Played:
    """Machines of one folder, of the kinds of a cloud. A request is served when the price allows it; a machine is
    revoked, with its notice, when its price is above what was offered or there are more than could be had.
    """

    def __init__(self, local: Local, cloud: PlayedCloud, folder: Path) -> None:
        self._local, self._cloud = local, cloud
        self._file = folder / "offers.json"
        """What was asked for and not given back, by the names of machines: a driver that comes after a crash must
        know."""
        self._began_unix_s = time.time()
        there = {machine.name: machine for machine in local.list()}
        known = msgspec.json.decode(self._file.read_bytes(), type=dict[str, Offer]) if self._file.exists() else {}
        self._served = {name for name in known if (folder / name).exists()}
        self._offers = {name: offer for name, offer in known.items() if name in there or name not in self._served}
        self._revoked = {name for name, machine in there.items() if machine.gone_at_unix_s is not None}
        self._watched_s: dict[str, float] = {}
        """Until when each machine's price was looked at; by this driver, or else since it is there."""

    def run_began(self, unix_s: float) -> None:
        self._began_unix_s = unix_s

    def request(self, name: str, offer: Offer | None = None) -> None:
        assert offer is not None
        if name in self._offers:
            return
        self._offers[name] = offer
        self._write()
        self._serve()

    def list(self) -> list[Machine]:
        self._serve()
        there = {machine.name: machine for machine in self._local.list()}
        if self._take(there):
            there = {machine.name: machine for machine in self._local.list()}
        return [self._seen(name, there) for name in self._offers if name in there or name not in self._served]

    def release(self, name: str) -> None:
        self._local.release(name)
        if self._offers.pop(name, None) is not None:
            self._served.discard(name)
            self._revoked.discard(name)
            self._watched_s.pop(name, None)
            self._write()

    def price(self) -> float:
        return self._local.price()

    def why_gone(self, name: str) -> str:
        return self._local.why_gone(name)

    def was_taken(self, name: str) -> bool:
        return name in self._revoked or self._local.was_taken(name)

    def close(self) -> None:
        self._local.close()

    # ------------------------------------------------------------------------------------------------ what happens

    def _now_s(self) -> float:
        return max(0.0, time.time() - self._began_unix_s)

    def _write(self) -> None:
        draft = self._file.with_suffix(".draft")
        draft.write_bytes(msgspec.json.encode(self._offers))
        draft.replace(self._file)

    def _seen(self, name: str, there: Mapping[str, Machine]) -> Machine:
        if name not in there:
            return Machine(name, 0, None, 0.0, served=False)
        offer = self._offers[name]
        refund_s = self._cloud.refund_s / self._cloud.pace if offer.market == "spot" else 0.0
        return replace(there[name], price_usd_per_hour=self._cloud.price(offer, self._now_s()), refund_s=refund_s)

    def _serve(self) -> None:
        now_s = self._now_s()
        for name, offer in self._offers.items():
            if name not in self._served and self._cloud.served_s(offer, now_s) <= now_s and self._has_room(offer):
                self._served.add(name)
                self._watched_s[name] = now_s
                self._local.request(name)

    def _has_room(self, offer: Offer) -> bool:
        return offer.market == "on-demand" or len(self._held(offer.type)) < self._cloud.available(
            offer.type, self._now_s()
        )

    def _held(self, market: str) -> Sequence[str]:
        return [
            name
            for name, offer in self._offers.items()
            if (offer.type, offer.market) == (market, "spot") and name in self._served and name not in self._revoked
        ]

    def _take(self, there: Mapping[str, Machine]) -> bool:
        """Between two looks, or two drivers, the price may have been above the offer and have come back: that counts,
        and so does the part of the notice that is over. Says whether there are new notices.
        """
        now_s, before = self._now_s(), len(self._revoked)
        for market in {offer.type for offer in self._offers.values() if offer.market == "spot"}:
            held = [name for name in self._held(market) if name in there]
            surplus = max(0, len(held) - self._cloud.available(market, now_s))
            for place, name in enumerate(reversed(held)):
                since_s = self._watched_s.get(name, there[name].billed_from_unix_s - self._began_unix_s)
                above_s = self._cloud.taken_s(self._offers[name], since_s)
                self._watched_s[name] = now_s
                if above_s <= now_s or place < surplus:
                    self._revoke(name, now_s - above_s if above_s <= now_s else 0.0)
        return len(self._revoked) > before

    def _revoke(self, name: str, ago_s: float) -> None:
        with suppress(SpecError):  # it has just ended by itself
            self._local.revoke(name, max(0.0, self._cloud.notice_s / self._cloud.pace - ago_s))
            self._revoked.add(name)
