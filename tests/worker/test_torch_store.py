"""The store through which the workers of a trial find each other."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from elastune.worker.torch.store import MeetingPoint

LONG, SHORT = timedelta(seconds=30), timedelta(milliseconds=50)


def free_address() -> tuple[str, int]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return "127.0.0.1", probe.getsockname()[1]


@pytest.fixture
def pair() -> Iterator[tuple[MeetingPoint, MeetingPoint]]:
    address = free_address()
    host = MeetingPoint(address, True, LONG)
    guest = MeetingPoint(address, False, LONG)
    yield host, guest
    guest.close()
    host.close()


def test_what_one_leaves_all_find(pair: tuple[MeetingPoint, MeetingPoint]) -> None:
    for mine, other in (pair, pair[::-1]):
        mine.set("address", "here")
        assert other.get("address") == b"here" and other.check(["address"]) and not other.check(["address", "more"])
        assert other.delete_key("address") and not mine.check(["address"]) and not mine.delete_key("address")
    assert [each.add("count", 2) for each in (*pair, *pair)] == [2, 4, 6, 8]


@pytest.mark.parametrize("first", [0, 1])
def test_who_asks_too_early_waits(pair: tuple[MeetingPoint, MeetingPoint], first: int) -> None:
    with ThreadPoolExecutor() as pool:
        got, waited = pool.submit(pair[first].get, "late"), pool.submit(pair[1 - first].wait, ["late", "later"])
        pair[0].set("late", b"\x00\xff")
        assert got.result(10) == b"\x00\xff" and not waited.done()
        pair[0].set("later", "")
        waited.result(10)


def test_who_comes_before_the_host_waits_for_it() -> None:
    address, guests = free_address(), []
    thread = threading.Thread(target=lambda: guests.append(MeetingPoint(address, False, LONG)))
    thread.start()
    host = MeetingPoint(address, True, LONG)
    thread.join(10)
    (guest,) = guests
    guest.set("i am", "here")
    assert host.get("i am") == b"here"
    guest.close()
    host.close()


def test_nobody_waits_for_ever() -> None:
    address = free_address()
    with pytest.raises(OSError, match="refused"):
        MeetingPoint(address, False, SHORT)
    host = MeetingPoint(address, True, SHORT)
    with pytest.raises(TimeoutError, match="not heard of for"):
        host.get("never")
    guest = MeetingPoint(address, False, SHORT)
    with pytest.raises(EOFError):
        guest.get("never")
    guest.close()
    host.close()


def test_who_waits_for_a_host_that_goes_gets_an_error(pair: tuple[MeetingPoint, MeetingPoint]) -> None:
    host, guest = pair
    guest.set("i am", "here")
    with ThreadPoolExecutor() as pool:
        waits = pool.submit(guest.get, "never")
        host.close()
        with pytest.raises((EOFError, OSError)):
            waits.result(10)
