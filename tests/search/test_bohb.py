from __future__ import annotations

import math
import pickle
import random
from collections.abc import Callable, Iterable
from statistics import mean, median
from typing import Any

import pytest

from elastune.messages import Config
from elastune.search import RandomSearcher, Result, Searcher
from elastune.search.bohb import BOHBSearcher, Budget
from elastune.space import Space, choice, lograndint, loguniform, quniform, randint, uniform
from elastune.spec import Mode

LINE = {"x": uniform(0, 1)}
MIXED = {
    "x": uniform(-1, 1),
    "lr": loguniform(1e-4, 1e-1),
    "drop": quniform(0, 0.5, 0.1),
    "layers": randint(1, 6),
    "width": lograndint(8, 129),
    "act": choice(["relu", "tanh", None]),
    "opt": choice([{"kind": "sgd", "momentum": uniform(0, 0.9)}, {"kind": "adam"}]),
}


def make(space: dict[str, Any], mode: Mode = "min", seed: int = 0) -> BOHBSearcher:
    searcher = BOHBSearcher()
    searcher.setup(Space(space), mode, seed)
    return searcher


def loss(config: Config) -> float:
    """Zero at x = 0.3, lr = 0.01, no dropout, 4 layers of 64, tanh, SGD with momentum 0.7."""
    numbers = (config["x"] - 0.3) ** 2 + (math.log10(config["lr"]) + 2) ** 2 + config["drop"]
    network = abs(config["layers"] - 4) / 4 + abs(math.log2(config["width"] / 64)) / 3 + (config["act"] != "tanh")
    return float(numbers + network + 2 * (config["opt"].get("momentum", 0.0) - 0.7) ** 2)


def best_of(searcher: Searcher, space: dict[str, Any], n: int, seed: int, worth: Callable[[Config], float]) -> float:
    searcher.setup(Space(space), "min", seed)
    best = math.inf
    for number in range(n):
        config = searcher.suggest()
        assert config is not None
        best = min(best, value := worth(config))
        searcher.observe(Result(number, config, 9, value, final=True))
    return best


@pytest.mark.parametrize(
    ("space", "worth", "n"),
    [
        (MIXED, loss, 100),
        ({"x": uniform(0, 1), "y": uniform(0, 1)}, lambda config: (config["x"] - 0.8) ** 2 + config["y"] ** 2, 50),
    ],
    ids=["mixed", "bowl"],
)
def test_it_finds_better_configurations_than_random_search(
    space: dict[str, Any], worth: Callable[[Config], float], n: int
) -> None:
    by_model = mean(best_of(BOHBSearcher(), space, n, seed, worth) for seed in range(20))
    by_chance = mean(best_of(RandomSearcher(), space, n, seed, worth) for seed in range(20))
    assert by_model < 0.6 * by_chance


# ------------------------------------------------------------------------------------------------------------- budgets


def suggested(searcher: Searcher, n: int) -> list[Config]:
    return [config for config in (searcher.suggest() for _ in range(n)) if config is not None]


def tell(searcher: Searcher, configs: list[Config], iterations: Iterable[int], best: float) -> None:
    """Every trial is observed at its iteration, and the nearer its x is to `best` the better."""
    for number, (config, iteration) in enumerate(zip(configs, iterations, strict=False)):
        searcher.observe(Result(number, config, iteration, abs(config["x"] - best), final=False))


def centre(searcher: Searcher) -> float:
    """Where most suggestions are: two of three are by the model."""
    return median(float(config["x"]) for config in suggested(searcher, 300))


def test_the_model_is_of_the_largest_budget_with_enough_observations() -> None:
    searcher = make(LINE)
    configs = suggested(searcher, 40)
    assert centre(searcher) == pytest.approx(0.5, abs=0.1), "nothing is known"
    tell(searcher, configs, 40 * [1], best=0.1)
    assert centre(searcher) < 0.25
    tell(searcher, configs[:3], 3 * [27], best=0.9)
    assert centre(searcher) < 0.25, "three are not enough: one axis needs 1 + 1 + 2"
    tell(searcher, configs[:20], 20 * [9], best=0.9)
    assert centre(searcher) > 0.75
    tell(searcher, configs[:30], 30 * [3], best=0.1)
    assert centre(searcher) > 0.75, "what is observed at a smaller budget changes nothing"


def test_iterations_that_are_all_different_are_one_budget_up_to_the_double() -> None:
    searcher = make(LINE)
    configs = suggested(searcher, 16)
    tell(searcher, configs, range(16, 32), best=0.1)
    assert centre(searcher) < 0.3
    tell(searcher, configs, [32, 64, 128, 256], best=0.9)
    assert centre(searcher) < 0.3, "four budgets with one observation each"


def test_a_trial_counts_with_its_newest_result_of_a_budget() -> None:
    searcher = make(LINE)
    configs = suggested(searcher, 20)
    tell(searcher, configs, 20 * [4], best=0.1)
    tell(searcher, configs, 20 * [7], best=0.9)
    assert centre(searcher) > 0.75


def test_more_is_better_where_the_user_says_so() -> None:
    searcher = make(LINE, mode="max")
    tell(searcher, suggested(searcher, 20), 20 * [1], best=0.1)
    assert centre(searcher) > 0.7


@pytest.mark.parametrize("first", ["failures", "results"])
def test_failed_trials_are_among_the_bad_of_every_budget_that_they_did_not_reach(first: str) -> None:
    """The nearer to 0.5 the better, and beyond it trials fail at once; without them nothing would be known of it."""

    def beyond(told: bool) -> float:
        searcher = make(LINE)
        trials = list(enumerate(suggested(searcher, 60)))
        results = [Result(i, config, 9, -config["x"], final=True) for i, config in trials if config["x"] < 0.5]
        failures = [Result(i, config, 0, None, final=True) for i, config in trials if config["x"] >= 0.5]
        order = [failures, results] if first == "failures" else [results, failures]
        for event in [event for events in order for event in events if told or event.value is not None]:
            searcher.observe(event)
        return mean(float(config["x"] >= 0.5) for config in suggested(searcher, 600))

    assert beyond(told=True) < 0.25 < 0.5 < beyond(told=False)


@pytest.mark.parametrize("count", [5, 7, 30, 10_000])
def test_the_best_are_good_and_the_others_bad_and_no_more_than_a_model_can_bear(count: int) -> None:
    budget = Budget()
    for number in range(count):
        budget.put(number, 2.0 * count)
    for number in range(count):
        budget.put(number, math.inf if number == count - 1 else float(number))
    good, bad = budget.split(least=3)
    expected = {5: ([0, 1, 2], [2, 3, 4]), 7: ([0, 1, 2], [3, 4, 5, 6]), 30: ([*range(4)], [*range(4, 30)])}
    if count in expected:
        assert (good, sorted(bad)) == expected[count]
    else:
        assert good == [*range(64)]
        assert len(bad) <= 192 and max(bad) == count - 1 and 1500 <= min(bad) < 1600


# --------------------------------------------------------------------------------------------------------------- spaces


def test_what_belongs_to_an_option_is_learnt_from_those_who_chose_it() -> None:
    space = {
        "opt": choice([{"kind": "sgd", "momentum": uniform(0, 1)}, {"kind": "adam", "eps": loguniform(1e-9, 1)}]),
        "sizes": choice([[1], [2, 3], [4, 5, 6]]),
    }

    def worth(config: Config) -> float:
        return abs(float(config["opt"].get("momentum", 3.0)) - 0.8) + len(config["sizes"])

    searcher = make(space)
    for number in range(60):
        config = searcher.suggest()
        searcher.observe(Result(number, config, 1, worth(config), final=True))
    configs = suggested(searcher, 200)
    sgd = [config["opt"]["momentum"] for config in configs if config["opt"]["kind"] == "sgd"]
    assert len(sgd) > 0.7 * len(configs)
    assert median(sgd) == pytest.approx(0.8, abs=0.1)
    assert mean(config["sizes"] == [1] for config in configs) > 0.6
    assert all(Space(space).answers(config) is not None for config in configs)


def test_options_that_cannot_be_told_apart_are_known_by_what_was_suggested() -> None:
    """A number in both ranges may have come from either; the first option would be taken for it."""
    searcher = make({"x": choice([uniform(0, 1), uniform(0, 0.1)])})
    for number in range(60):
        config = searcher.suggest()
        searcher.observe(Result(number, config, 1, config["x"], final=True))
    assert median(config["x"] for config in suggested(searcher, 100)) < 0.1


@pytest.mark.parametrize("domain", [3, choice([3]), randint(3, 4)], ids=str)
def test_a_space_with_one_configuration_is_no_trouble(domain: Any) -> None:
    searcher = make({"x": domain})
    for number in range(20):
        config = searcher.suggest()
        assert config == {"x": 3}
        searcher.observe(Result(number, config, 1, 1.0, final=True))


def test_equal_results_are_no_trouble() -> None:
    searcher = make(MIXED)
    for number in range(40):
        searcher.observe(Result(number, searcher.suggest(), 1, 1.0, final=True))


# ------------------------------------------------------------------------------------------------- repeating, resuming


def learnt(seed: int = 0) -> BOHBSearcher:
    searcher = make(MIXED, seed=seed)
    for number in range(40):
        config = searcher.suggest()
        searcher.observe(Result(number, config, 1 + number % 3, loss(config), final=True))
    return searcher


def test_the_same_seed_gives_the_same_suggestions_of_the_model() -> None:
    assert suggested(learnt(), 20) == suggested(learnt(), 20)
    assert suggested(learnt(), 20) != suggested(learnt(seed=1), 20)


def test_pickling_changes_nothing_once_there_is_a_model() -> None:
    for before in range(3):  # the model is computed before the copy, or after it
        original = learnt()
        suggested(original, before)
        copied = pickle.loads(pickle.dumps(original))
        assert suggested(original, 20) == suggested(copied, 20)


def test_what_was_recorded_stands_and_the_searcher_moves_on_as_it_did() -> None:
    original, replayed, elsewhere = learnt(), learnt(), learnt()
    other = original.space.sample(random.Random(5))
    config = original.suggest()
    replayed.resuggest(config)
    elsewhere.resuggest(other)
    assert suggested(original, 5) == suggested(replayed, 5) == suggested(elsewhere, 5)
    original.observe(Result(40, config, 3, loss(config), final=True))
    elsewhere.observe(Result(40, other, 3, loss(other), final=True))
    assert suggested(original, 20) != suggested(elsewhere, 20), "it learns about what was tried, not what it would try"


def test_a_recorded_configuration_that_the_space_does_not_hold_teaches_nothing() -> None:
    original, replayed = learnt(), learnt()
    original.suggest()
    replayed.resuggest({"x": "of another space"})
    replayed.observe(Result(40, {"x": "of another space"}, 3, -100.0, final=True))
    assert suggested(original, 20) == suggested(replayed, 20)
