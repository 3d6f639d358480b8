"""Groups of trials to schedule, all schedules of the smallest, and what is true of any."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import permutations, product
from math import e, inf
from random import Random

from hypothesis import strategies as st

from elastune.allocate.makespan import Devices, Placed
from elastune.allocate.overheads import Overheads
from elastune.profile.scaling import Scaling
from elastune.spec import Width

ROUNDED = 1 + 1e-9

TIMES = st.lists(st.one_of(st.floats(0.0, 100.0), st.sampled_from([1.0, 2.0, 4.0])), min_size=1, max_size=12)


def ideal(c: int, d: int) -> Overheads:
    """Nobody notices the others on a device, and w devices are w times as fast."""
    return Overheads.law(1.0, 1.0, c, d)


def area_preserving(c: int, d: int) -> Overheads:
    """Each of k trials on a device takes k times as long."""
    return Overheads(tuple(map(float, range(1, c + 1))), Scaling({w: w for w in range(1, d + 1)}), d)


@st.composite
def laws(draw: st.DrawFn, most: int = 8) -> Overheads:
    """With alpha and beta as the paper allows them."""
    c, d = draw(st.integers(1, most)), draw(st.integers(1, most))
    alpha = draw(st.one_of(st.just(1.0), st.floats(1.0, c / (c - 1), exclude_max=True))) if c > 1 else 1.0
    beta = draw(st.one_of(st.just(1.0), st.floats(1.0, 1 + 1 / d, exclude_max=True)))
    return Overheads.law(alpha, beta, c, d)


def random_groups(number: int, seed: int, most: int = 24) -> Iterator[tuple[Random, list[float], int]]:
    """Times and devices: alike, spread out, a few lengths, or one long trial among short ones."""
    random = Random(seed)
    for _ in range(number):
        trials = random.choice([random.randint(1, 5), random.randint(1, most)])
        kind = random.randrange(4)
        if kind == 0:
            times = [random.uniform(0.9, 1.1) for _ in range(trials)]
        elif kind == 1:
            times = [random.lognormvariate(0, 1.5) for _ in range(trials)]
        elif kind == 2:
            times = [random.choice([0.5, 1.0, 1.999, 10.0]) for _ in range(trials)]
        else:
            times = [random.random() for _ in range(trials)]
            times[0] = sum(times) * random.uniform(0, 2)
        yield random, times, random.randint(1, 16)


def random_law(random: Random, n: int) -> tuple[float, float, int, int]:
    c, d = random.randint(1, 6), random.randint(1, n)
    alpha = random.choice([1.0, random.uniform(1, c / (c - 1))]) if c > 1 else 1.0
    return alpha, random.choice([1.0, random.uniform(1, 1 + 1 / d)]), c, d


def power(base: float) -> float:
    """base^(1 / (base - 1)), which goes to e where the base goes to 1."""
    return e if base - 1 < 1e-9 else float(base ** (1 / (base - 1)))


def all_widths(n: int, overheads: Overheads) -> list[Width]:
    parts = [Fraction(1, k) for k in range(overheads.c, 1, -1)]
    return [*parts, *range(1, min(n, overheads.d) + 1)]


def least_s(times: Sequence[float], n: int, overheads: Overheads) -> float:
    """No schedule is shorter: what trials take of the devices at least, and the longest at its best."""
    factors = {width: overheads.factor(width) for width in all_widths(n, overheads)}
    area = min(float(width) * factor for width, factor in factors.items())
    return max(sum(times) * area / n, max(times) * min(factors.values()))


def optimum_s(times: Sequence[float], n: int, overheads: Overheads) -> float:
    """By all widths in all orders."""
    widths, best = all_widths(n, overheads), inf
    factors = {width: overheads.factor(width) for width in widths}
    orders = list(permutations(range(len(times))))
    for chosen in product(widths, repeat=len(times)):
        durations = [time * factors[width] for time, width in zip(times, chosen, strict=True)]
        area = sum(duration * float(width) for duration, width in zip(durations, chosen, strict=True))
        if max(durations) < best and area / n < best:
            best = min(best, *(_done_s(durations, chosen, n, order) for order in orders))
    return best


def _done_s(durations: Sequence[float], widths: Sequence[Width], n: int, order: Sequence[int]) -> float:
    devices = Devices(n)
    return max(devices.take(widths[trial], durations[trial])[0] + durations[trial] for trial in order)


def oversubscribed(placed: Sequence[Placed], widths: Sequence[Width], n: int) -> list[str]:
    """Where a device is given to more than it has room for, and who is on another number of devices than its width."""
    found, taken = [], defaultdict[int, list[tuple[float, int, Width]]](list)
    for trial, (each, width) in enumerate(zip(placed, widths, strict=True)):
        if len({*each.devices} & {*range(n)}) != max(1, width):
            found.append(f"trial {trial}: {each.devices} for {width}")
        for device in each.devices:
            share = min(width, Fraction(1))
            if each.end_s > each.start_s:
                taken[device] += [(each.start_s, 1, share), (each.end_s, 0, -share)]
    for device, changes in taken.items():
        used: Width = Fraction(0)
        for at_s, _, share in sorted(changes):
            used += share
            if used > 1:
                found.append(f"device {device} at {at_s}: {used}")
    return found
