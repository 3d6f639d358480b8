"""RubberBand's Table 1: the throughput of trials placed by `elastune.place` and of trials placed at random.

A cluster is filled with trials of one width, by FreeSlots or by dealing out its devices at random. How fast each trial
then is was measured for its very placement: the traces of Pollux have 4 together, 22, 13, 112, 1111 and the others.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from random import Random
from statistics import fmean

from elastune.messages import Slot
from elastune.place import FreeSlots
from elastune.profile import placement_step_s

MACHINES, DEVICES = 8, 4
JOBS = {"imagenet": 1024, "cifar10": 1024, "bert": 48, "deepspeech2": 160, "yolov3": 64}
"""Global batch sizes: that of the paper for ResNets, for the others about what their authors train with."""
PAPER = {1: (749.58, 673.76), 2: (1480.07, 947.76), 4: (2773.04, 1209.51)}
"""Samples per second with and without its controller, by number of GPUs."""


def print_table_1(traces: Path, shuffles: int) -> None:
    print(f"\nTable 1: samples per second of a trial, {MACHINES} machines of {DEVICES} full of trials of one width;")
    print("step times by placement from pollux_traces (T4s, it is thought, not the paper's V100s)")
    print(f"{'job, global batch':34}{'devices':>12}{'placed':>12}{'random':>12}{'placed/random':>16}{'paper':>12}")
    for name, batch in JOBS.items():
        for width in (1, 2, 4):
            placed = fmean(_speeds(traces / name, batch, _placed(width)))
            rng = Random(0)
            random = fmean(
                fmean(_speeds(traces / name, batch, _at_random(width, rng)))
                for _ in range(shuffles if width > 1 else 1)
            )
            with_control, without = PAPER[width]
            paper = f"{with_control / without:.2f}" if name == "imagenet" else ""
            label = f"{name}, {batch}" if width == 1 else ""
            print(f"{label:34}{width:>12}{placed:>12.1f}{random:>12.1f}{placed / random:>16.2f}{paper:>12}")
    print(
        "ResNet-50 (imagenet) is hardly slower when it is scattered, in these traces: its step is long against its\n"
        "synchronization. Models that exchange more for each second of work (bert, yolov3) lose, though less\n"
        "than in the paper. That trials on one machine disturb each other (its 1 GPU) is not in the traces."
    )


def _placed(width: int) -> list[str]:
    free = FreeSlots()
    for number in range(MACHINES):
        free.add_node(f"m{number}", DEVICES)
    found = []
    while (slots := free.take(width)) is not None:
        found.append(_spelled(slots))
    return found


def _at_random(width: int, rng: Random) -> list[str]:
    slots = [Slot(f"m{number}", device) for number in range(MACHINES) for device in range(DEVICES)]
    rng.shuffle(slots)
    return [_spelled(tuple(slots[first : first + width])) for first in range(0, len(slots), width)]


def _spelled(slots: tuple[Slot, ...]) -> str:
    return "".join(map(str, sorted(Counter(slot.node for slot in slots).values())))


def _speeds(folder: Path, batch: int, placements: list[str]) -> list[float]:
    return [_samples_per_s(folder, batch, name) for name in placements]


@cache
def _samples_per_s(folder: Path, batch: int, placement: str) -> float:
    return batch / placement_step_s(folder, batch, placement)
