"""Server-sent events: whoever watches the same thing shares one poller, and while he waits he has no thread."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

log = logging.getLogger("elastune")

EVERY_S, SHARE = 0.5, 20
"""How often it is looked, and how much longer the poller rests than looking took."""
STILL_THERE_S = 15.0
"""So often a watcher hears something, and it is looked whether he may still watch."""
LONGEST_S = 600.0
"""A browser connects again by itself."""
LOOKERS = 4
"""Threads that look at the same time: those of requests are left alone."""


@dataclass(frozen=True, slots=True)
class Look:
    """What there is to tell; `over`: there will be nothing more."""

    text: str
    over: bool = False


@dataclass
class _Channel:
    look: Callable[[], Look]
    newest: Look | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    watchers: int = 0
    poller: asyncio.Task[None] | None = None


class Live:
    def __init__(self) -> None:
        self._channels: dict[str, _Channel] = {}
        self._limiter: CapacityLimiter | None = None

    async def watch(
        self, key: str, event: str, look: Callable[[], Look], may: Callable[[], bool] = lambda: True
    ) -> AsyncIterator[str]:
        """The stream of one watcher: what is there now, and again whenever it has changed. After the last there is an
        event `end`. It is cut off when the watcher `may` not any more.
        """
        channel = self._channels.setdefault(key, _Channel(look))
        channel.watchers += 1
        if channel.poller is None:
            channel.poller = asyncio.create_task(self._poll(channel))
        try:
            shown, until, ask_s = None, time.monotonic() + LONGEST_S, time.monotonic() + STILL_THERE_S
            yield "retry: 2000\n\n"
            while time.monotonic() < until:
                changed, newest = channel.changed, channel.newest
                if newest is not None and newest is not shown:
                    shown = newest
                    yield f"event: {event}\ndata: {newest.text}\n\n"
                    if newest.over:
                        yield "event: end\ndata: {}\n\n"
                        return
                try:
                    await asyncio.wait_for(changed.wait(), STILL_THERE_S)
                except TimeoutError:
                    yield ": still there\n\n"
                if time.monotonic() >= ask_s:
                    if not await self._asked(may):
                        return
                    ask_s = time.monotonic() + STILL_THERE_S
        finally:
            channel.watchers -= 1
            if not channel.watchers:
                channel.poller.cancel()
                del self._channels[key]

    @property
    def watched(self) -> int:
        """How many things are."""
        return len(self._channels)

    async def _asked(self, may: Callable[[], bool]) -> bool:
        try:
            return await run_sync(may, limiter=self._lookers())
        except Exception as error:  # the database may come back; until then there is nothing to tell either
            log.warning("it cannot be read who may watch: %s", error)
            return True

    def _lookers(self) -> CapacityLimiter:
        self._limiter = self._limiter or CapacityLimiter(LOOKERS)
        return self._limiter

    async def _poll(self, channel: _Channel) -> None:
        while True:
            took_s = 0.0
            try:
                found, took_s = await run_sync(_timed, channel.look, limiter=self._lookers(), abandon_on_cancel=True)
            except Exception as error:  # the database may come back
                log.warning("what is watched cannot be read: %s", error)
            else:
                if found != channel.newest:
                    channel.newest = found
                    channel.changed.set()
                    channel.changed = asyncio.Event()
                if found.over:
                    return
            await asyncio.sleep(max(EVERY_S, SHARE * took_s))


def _timed(look: Callable[[], Look]) -> tuple[Look, float]:
    """How long it was at work, not how long it waited for others: else all would rest for long when many look."""
    begin_s = time.thread_time()
    return look(), time.thread_time() - begin_s
