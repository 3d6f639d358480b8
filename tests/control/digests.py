"""Worlds that must give the same journal wherever and whenever they run. As a script it prints a digest of each."""

from __future__ import annotations

import hashlib

from tests.worlds import World, timed_world, world

from elastune.algorithm import ASHA, BOHB, PBT, SEER, ElasticHyperband, Hyperband, SuccessiveHalving, SyncBOHB
from elastune.cluster.simulated import Fault

FAULTS = [Fault(4.0, "lose", "n0", 1.5), Fault(9.0, "kill", "t-00003"), Fault(12.0, "lose", "n1")]


def worlds(seed: int) -> dict[str, World]:
    return {
        "ASHA and random": world(ASHA(30, 1, 27), machines=2, devices=3, seed=seed),
        "halving and TPE": world(SuccessiveHalving(16, 1, 8, 2), searcher="tpe", machines=2, devices=3, seed=seed),
        "BOHB and its model": world(BOHB(9, n=60), searcher="bohb", machines=2, devices=3, seed=seed),
        "BOHB in step": world(SyncBOHB(9, n=40), searcher="bohb", machines=2, devices=3, seed=seed),
        "PBT and faults": world(
            PBT(8, 20, 3), machines=2, devices=3, seed=seed, faults=FAULTS, lifetime_s=30.0, checkpoint_every_s=2.0
        ),
        "Hyperband, faults and stragglers": world(
            Hyperband(9),
            machines=2,
            devices=3,
            seed=seed,
            faults=FAULTS,
            stragglers=0.4,
            lifetime_s=30.0,
            checkpoint_every_s=2.0,
        ),
        "SEER, faults and stragglers": timed_world(
            SEER(eta=2, t_min=4.0),
            deadline_s=60.0,
            budget_device_s=900.0,
            devices=3,
            seed=seed,
            faults=FAULTS,
            stragglers=0.4,
            boot_s=2.0,
        ),
        "elastic Hyperband": timed_world(
            ElasticHyperband(eta=2, t_min=4.0), deadline_s=60.0, budget_device_s=600.0, devices=2, seed=seed
        ),
    }


def digest(place: World) -> str:
    return hashlib.sha256(b"\n".join(place.run().journal.read())).hexdigest()


if __name__ == "__main__":
    for name, place in worlds(seed=1).items():
        print(f"{name}: {digest(place)}")
