from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elastune.errors import SpecError
from elastune.profile import Scaling, constant, from_pollux, from_table, placement_step_s

# A step takes 1 s and 0.1 s for each sample of a replica; on more than one machine there are 2 s for synchronization.
PLACEMENTS = """\
placement,local_bsz,step_time,sync_time
1,10,2,0
1,20,3,0
2,10,2,0
2,20,3,0
1111,10,4,2
1111,20,5,2
12,20,5,2
4,20,3,0
4,10,2,0
44,10,4,2
44,20,5,2
"""
SCALABILITY = """\
num_nodes,num_replicas,local_bsz,step_time,sync_time
6,24,10,4,2
6,8,10,9,7
8,16,10,9,7
6,24,20,5,2
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "placements.csv").write_text(PLACEMENTS)
    (tmp_path / "scalability.csv").write_text(SCALABILITY)
    return tmp_path


def test_a_constant_batch_is_shared_among_replicas_on_as_few_machines_as_possible(folder: Path) -> None:
    profile = from_pollux(folder, 80)
    # One device: four passes of 20. Two: two. Four: one. Eight: 10 samples each, and machines that synchronize.
    assert profile.step == constant(12.0)
    assert profile.scaling == Scaling({1: 1.0, 2: 12 / 6, 4: 12 / 3, 8: 12 / 4})


def test_passes_without_synchronization_are_cheaper(folder: Path) -> None:
    assert placement_step_s(folder, 80, "1111") == 5.0
    assert placement_step_s(folder, 160, "1111") == 5.0 + 3.0


def test_a_batch_between_two_measured_ones_is_interpolated(folder: Path) -> None:
    assert placement_step_s(folder, 60, "4") == pytest.approx(2.5)
    assert placement_step_s(folder, 57, "4") == pytest.approx(2.5)  # the slowest replica has 15


def test_wide_trials_are_taken_from_the_other_table_if_their_machines_are_full(folder: Path) -> None:
    profile = from_pollux(folder, 240)
    assert list(profile.scaling.speedups) == [1, 2, 4, 8, 24]
    assert profile.scaling(24) == pytest.approx(profile.step.mean_s / 4)


def test_machines_may_be_named_in_any_order_of_the_ring(folder: Path) -> None:
    assert placement_step_s(folder, 60, "21") == placement_step_s(folder, 60, "12") == 5.0


def test_together_and_scattered_can_be_compared(folder: Path) -> None:
    assert placement_step_s(folder, 40, "4") < placement_step_s(folder, 40, "1111")


@pytest.mark.parametrize(
    ("batch", "placement", "message"),
    [
        (80, "3", "placement='3': was not measured; allowed: 1, 1111, 12, 2, 4, 44"),
        (80, "", "placement='': was not measured"),
        (20, "4", "batch=20: must be at least 40 in placement '4'"),
        (0, "4", "batch=0: must be a whole number of at least 1"),
    ],
)
def test_what_was_not_measured_is_refused(folder: Path, batch: int, placement: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        placement_step_s(folder, batch, placement)


def test_a_batch_too_small_for_one_device_is_refused(folder: Path) -> None:
    with pytest.raises(SpecError, match="batch=9: must be at least 10, the least that was measured"):
        from_pollux(folder, 9)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("placements.csv", None, r"placements\.csv: cannot be read: No such file"),
        ("scalability.csv", "num_nodes,step_time\n1,2\n", r"scalability\.csv: must be a table with num_nodes"),
        ("placements.csv", PLACEMENTS + "4,20,x,0\n", r"placements\.csv: must be a table with placement.*'x'"),
        ("placements.csv", PLACEMENTS + "4,20,nan,0\n", "20, nan, 0 cannot be"),
        ("placements.csv", PLACEMENTS + "4,20\n", r"placements\.csv: must be a table"),
        ("placements.csv", PLACEMENTS + "x,20,1,0\n", "x should be digits"),
        ("placements.csv", "placement,local_bsz,step_time,sync_time\n2,10,2,0\n", "has no placement 1"),
    ],
)
def test_a_folder_that_is_no_trace_is_refused(folder: Path, name: str, text: str | None, message: str) -> None:
    (folder / name).unlink() if text is None else (folder / name).write_text(text)
    with pytest.raises(SpecError, match=message):
        from_pollux(folder, 80)


def test_a_table_of_throughput_gives_a_scaling() -> None:
    assert from_table({"4": 700, "1": 200, "2": 390}) == Scaling({1: 1.0, 2: 1.95, 4: 3.5})
    assert from_table({1: 1.0, 2: 1.77}) == Scaling({1: 1.0, 2: 1.77})


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([1, 2], "must map numbers of devices to throughput"),
        ({"2": 1.0}, "must say the throughput of 1 device"),
        ({"1": 1.0, "x": 2.0}, "number of devices='x': must be a whole number"),
        ({"1": 1.0, "2": 0}, "throughput of 2=0: must be a number greater than 0"),
    ],
)
def test_what_is_no_table_is_refused(rows: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        from_table(rows)
