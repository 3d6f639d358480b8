"""The picture of a plan by the clock shows every trial, with its devices, for its time."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.text import Text

from elastune.reporting.timed_plots import ENDED_COLOUR, FINAL_COLOURS, Strip, bars, devices_over_time

NARROW: Strip = ([(3.0, 60.0, 1), (60.0, 180.0, 1)], True)
WIDER: Strip = ([(3.0, 60.0, 1), (60.0, 180.0, 4)], True)
WIDE: Strip = ([(3.0, 60.0, 2)], False)


def spans(thin: bool, *strips: Strip) -> list[tuple[float, float, int, int, str]]:
    return [(bar.from_s, bar.to_s, bar.bottom, bar.height, bar.colour) for bar in bars(strips, thin)[0]]


def test_those_that_last_are_at_the_bottom_in_colours_of_their_own_and_the_others_on_top() -> None:
    blue, orange = FINAL_COLOURS[:2]
    assert spans(False, WIDE, NARROW, WIDE, NARROW) == [
        (3.0, 180.0, 0, 1, blue),
        (3.0, 180.0, 1, 1, orange),
        (3.0, 60.0, 2, 2, ENDED_COLOUR),
        (3.0, 60.0, 4, 2, ENDED_COLOUR),
    ]


def test_a_trial_that_gets_more_devices_becomes_higher_and_lifts_those_above_it() -> None:
    blue, orange = FINAL_COLOURS[:2]
    assert spans(False, NARROW, WIDER) == [
        (3.0, 60.0, 0, 1, blue),
        (60.0, 180.0, 0, 4, blue),
        (3.0, 60.0, 1, 1, orange),
        (60.0, 180.0, 4, 1, orange),
    ]


def test_where_they_are_too_thin_those_that_are_alike_are_one_block() -> None:
    blue = FINAL_COLOURS[0]
    assert spans(True, *[NARROW] * 30, *[WIDE] * 500) == [
        (3.0, 180.0, 0, 30, blue),
        (3.0, 60.0, 30, 1000, ENDED_COLOUR),
    ]


def written(figure: Figure) -> list[Text]:
    (axes,) = figure.axes
    return [text for text in axes.texts if text.get_text()]


def test_nothing_is_written_over_anything_else() -> None:
    short: Strip = ([(3.0, 6.0, 1)], False)
    few = devices_over_time([NARROW, WIDER, *[WIDE] * 3, *[short] * 7], [(60.0, 15), (180.0, 5)], 3.0, 180.0)
    many = devices_over_time([*[NARROW] * 40, *[WIDE] * 450, short], [(60.0, 941), (180.0, 40)], 3.0, 180.0)
    assert [text.get_text() for text in written(few)] == [
        "1 device",
        "4 devices",
        "1 device",
        "1 device",
        "3 x 2 devices",
    ]
    assert [text.get_text() for text in written(many)] == ["40 x 1 device", "450 x 2 devices"]
    for figure in (few, many):
        figure.draw_without_rendering()
        (axes,) = figure.axes
        boxes = [text.get_window_extent() for text in written(figure)]
        assert all(not one.overlaps(two) for i, one in enumerate(boxes) for two in boxes[:i])
        assert all(axes.get_window_extent().contains(*box.min) for box in boxes)
        assert figure.legends[0].get_window_extent().x1 <= figure.bbox.x1
