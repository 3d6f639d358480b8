"""What the trials of one experiment get of its devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from elastune.allocate.base import View
from elastune.allocate.pace import Pace
from elastune.allocate.share import Share
from elastune.spec import Width

USABLE = [1, 2, 3, 4]


def share(
    lefts: Mapping[str, int],
    running: Mapping[str, Width],
    waiting: Sequence[str] = (),
    resize_s: float = 0.1,
    speedups: Mapping[int, float] | None = None,
) -> Share:
    """On four devices. A step takes a second; two devices are twice as fast, unless told otherwise."""
    pace = Pace(1, 4, {2: 2.0, 3: 3.0, 4: 4.0} if speedups is None else speedups, resize_s=resize_s)
    for trial in lefts:
        pace.meet(trial, {})
    view = View(0, running, waiting, left=lambda trial: lefts[trial], idle=lambda: made.idle)
    made = Share("", view, pace, USABLE, False, list(running), list(waiting))
    made.take_stock(4)
    return made


def test_a_trial_is_only_made_wider_where_what_a_resize_takes_is_less_than_that_saves() -> None:
    """On one device it has 8 s left, on four 2 s."""
    assert share({"a": 8}, {"a": 1}, resize_s=5.9).dynamic() == {"a": 4}
    assert share({"a": 8}, {"a": 1}, resize_s=6.1).dynamic() == {}


def test_a_trial_only_makes_room_where_that_saves_more_of_the_devices_than_a_resize_takes() -> None:
    """What is left takes 4 x 5 device-seconds, on two devices 2 x 5.6 and twice the resize."""
    poor = {2: 1.8, 3: 1.9, 4: 2.0}
    lefts = {"a": 10, "b": 10}
    assert share(lefts, {"a": 4}, ["b"], resize_s=4.0, speedups=poor).narrowed() == {"a": 2}
    assert share(lefts, {"a": 4}, ["b"], resize_s=5.0, speedups=poor).narrowed() == {}
    assert share(lefts, {"a": 4}, ["b"]).narrowed() == {}, "without the resize it would take as much"
    assert share({"a": 1, "b": 10}, {"a": 4}, ["b"], resize_s=0.0, speedups=poor).narrowed() == {}, "it leaves anyway"


def test_who_has_its_devices_packed_full_begins_nobody_on_what_others_leave_of_theirs() -> None:
    """Of two devices each of two experiments has one; on the other there is room for one trial more."""
    lefts, half = {"a": 10, "b": 10, "c": 10}, Fraction(1, 2)
    pace = Pace(2, 2, {-2: 0.9})
    for trial in lefts:
        pace.meet(trial, {})
    for running, begun in ((["a", "b"], {}), (["a"], {"c": half})):
        view = View(half, dict.fromkeys(running, half), ["c"], left=lefts.get, sharing=lambda trial: 2)
        share = Share("", view, pace, [1, 2], False, running, ["c"])
        share.take_stock(1)
        assert share.static() == begun
