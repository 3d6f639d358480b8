"""Trials on spot machines begin a few at a time where the searcher learns from those before."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.market.test_cloud import priced

import elastune as et
from elastune.search.base import Result, Searcher

PRICES = priced([(0.0, 0.2), (10.0 * 86_400.0, 0.21)]).prices


class Watching(Searcher):
    """Suggests how much it has learnt."""

    def __init__(self) -> None:
        self._known = 0

    def suggest(self) -> dict[str, int]:
        return {"known": self._known}

    def observe(self, result: Result) -> None:
        self._known += 1


class Indifferent(Watching):
    learns = False


@pytest.mark.parametrize("deadline", [None, "30d"])
def test_a_searcher_that_learns_is_asked_when_there_is_a_place(tmp_path: Path, deadline: str | None) -> None:
    def known(searcher: Searcher) -> list[int]:
        tuner = et.Tuner(
            None,
            space={"known": et.randint(0, 100)},
            metric="loss",
            algorithm=et.FIFO(9, 2),
            searcher=searcher,
            market=et.Spot(types={"a": {"price": 1.0}}, prices=PRICES, begin="1970-01-01T02:00", revocation=None),
            machines=3,
            deadline=deadline,
            storage=tmp_path,
        )
        result = tuner.simulate(et.Simulation(workload=et.Synthetic("loss", "min", step_s=600.0)))
        return [trial.config["known"] for trial in result.view.trials.values()]

    assert known(Indifferent()) == [0] * 9
    found = known(Watching())
    assert found[:3] == [0, 0, 0] and found == sorted(found) and found[3] >= 1 and found[-1] >= 6
