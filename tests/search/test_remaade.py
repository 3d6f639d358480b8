from __future__ import annotations

import math
import pickle
import random
import subprocess
import sys
import warnings
from statistics import mean
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.test_space import spaces

from elastune.errors import SpecError
from elastune.messages import Config
from elastune.search import RandomSearcher, Result, Searcher
from elastune.search.attention import MaskedAttention
from elastune.search.bins import BINS, UNUSED, Bins
from elastune.search.remaade import BATCH, ReMAADESearcher
from elastune.search.vectors import Vectors
from elastune.space import Space, choice, lograndint, loguniform, quniform, randint, uniform
from elastune.spec import Mode

LINE = {"x": uniform(0, 1)}
SWITCHES = {f"s{i}": choice(["a", "b", "c", "d"]) for i in range(5)}
CONDITIONAL = {
    "opt": choice([{"kind": "sgd", "momentum": uniform(0, 1)}, {"kind": "adam", "eps": loguniform(1e-9, 1)}]),
    "layers": randint(1, 5),
}


def make(space: dict[str, Any], mode: Mode = "min", seed: int = 0) -> ReMAADESearcher:
    searcher = ReMAADESearcher()
    searcher.setup(Space(space), mode, seed)
    return searcher


def suggested(searcher: Searcher, n: int) -> list[Config]:
    return [config for config in (searcher.suggest() for _ in range(n)) if config is not None]


def taught(searcher: Searcher, n: int, best: float = 0.1) -> Searcher:
    """After n trials on a line, of which the nearer to `best` the better."""
    for number in range(n):
        config = searcher.suggest()
        assert config is not None
        searcher.observe(Result(number, config, 1, abs(config["x"] - best), final=True))
    return searcher


# ------------------------------------------------------------------------------------------------------------- learning


def wrong_switches(config: Config) -> float:
    """The first two only count together."""
    together = 2.0 * (config["s0"] != "c" or config["s1"] != "b")
    return float(together + sum(config[f"s{i}"] != "d" for i in range(2, 5)))


def finds_the_optimum(searcher: Searcher, seed: int) -> bool:
    """In 160 trials, eight at a time, of 1,024 configurations."""
    searcher.setup(Space(SWITCHES), "min", seed)
    for begin in range(0, 160, 8):
        for number, config in enumerate(suggested(searcher, 8), begin):
            if (loss := wrong_switches(config)) == 0:
                return True
            searcher.observe(Result(number, config, 1, loss, final=True))
    return False


def test_it_finds_the_optimum_far_more_often_than_random_search() -> None:
    by_policy = sum(finds_the_optimum(ReMAADESearcher(), seed) for seed in range(20))
    by_chance = sum(finds_the_optimum(RandomSearcher(), seed) for seed in range(20))
    assert by_policy >= 15 and by_policy >= 2 * by_chance


@pytest.mark.parametrize(("mode", "low", "high"), [("min", 0.0, 0.3), ("max", 0.6, 1.0)])
def test_it_goes_where_the_good_ones_are(mode: Mode, low: float, high: float) -> None:
    centre = mean(config["x"] for config in suggested(taught(make(LINE, mode), 120), 100))
    assert low < centre < high


def test_only_ranks_count() -> None:
    plain, steep = make(LINE), make(LINE)
    for number in range(40):
        config = plain.suggest()
        assert steep.suggest() == config
        plain.observe(Result(number, config, 1, config["x"], final=True))
        steep.observe(Result(number, config, 1, math.exp(50 * config["x"]), final=True))


def test_what_belongs_to_an_option_is_learnt_from_those_who_chose_it() -> None:
    searcher = make(CONDITIONAL)
    for number in range(240):
        config = searcher.suggest()
        loss = abs(float(config["opt"].get("momentum", 3.0)) - 0.9)
        searcher.observe(Result(number, config, 1, loss, final=True))
    configs = suggested(searcher, 100)
    momenta = [config["opt"]["momentum"] for config in configs if config["opt"]["kind"] == "sgd"]
    assert len(momenta) > 80
    assert mean(momenta) > 0.7


def test_trials_are_compared_with_those_that_trained_about_as_long() -> None:
    """Half of the trials train long and lose little; what is good among the others must be learnt all the same."""
    searcher = make(LINE)
    for number in range(240):
        config = searcher.suggest()
        long = number % 2
        searcher.observe(Result(number, config, 64 if long else 1, config["x"] - 100 * long, final=True))
    assert mean(config["x"] for config in suggested(searcher, 100)) < 0.3


def test_where_trials_fail_it_does_not_go() -> None:
    searcher = make(LINE)
    for number in range(160):
        config = searcher.suggest()
        value = None if config["x"] > 0.5 else 1.0
        searcher.observe(Result(number, config, 0 if value is None else 1, value, final=True))
    assert mean(config["x"] > 0.5 for config in suggested(searcher, 200)) < 0.15


def test_where_all_are_equally_good_it_draws_as_evenly_as_it_can() -> None:
    """Half of the numbers that the space draws are 1; results that have no order leave nothing but the entropy."""
    searcher = make({"x": lograndint(1, 5)})
    shares = [mean(config["x"] == 1 for config in suggested(searcher, 600))]
    for number in range(600, 680):
        config = searcher.suggest()
        searcher.observe(Result(number, config, 1, 1.0, final=True))
    shares.append(mean(config["x"] == 1 for config in suggested(searcher, 600)))
    assert shares[0] > 0.45 and shares[1] < 0.4


def test_results_that_never_come_hold_nobody_up() -> None:
    searcher = make(LINE)
    for number in range(360):
        config = searcher.suggest()
        if number % 3 == 0:
            searcher.observe(Result(number, config, 1, config["x"], final=True))
    assert mean(config["x"] for config in suggested(searcher, 100)) < 0.3


def test_a_trial_teaches_once_and_not_while_it_trains() -> None:
    once, often = make(LINE), make(LINE)
    for number in range(40):
        config = once.suggest()
        assert often.suggest() == config
        often.observe(Result(number, config, 1, 1 - config["x"], final=False, trains=True))
        once.observe(Result(number, config, 4, config["x"], final=False))
        often.observe(Result(number, config, 4, config["x"], final=False))
        often.observe(Result(number, config, 9, 1 - config["x"], final=True))


def test_before_a_batch_is_complete_the_policy_stays() -> None:
    told, untold = make(LINE), make(LINE)
    configs = suggested(told, BATCH)
    assert suggested(untold, BATCH) == configs
    for number, config in enumerate(configs[:-1]):
        told.observe(Result(number, config, 1, config["x"], final=True))
    assert told.suggest() == untold.suggest()
    told.observe(Result(BATCH - 1, configs[-1], 1, configs[-1]["x"], final=True))
    assert suggested(told, 5) != suggested(untold, 5)


def test_losses_near_the_largest_float_are_told_apart() -> None:
    huge, small = make(LINE), make(LINE)
    for number, config in enumerate(suggested(huge, BATCH)):
        assert small.suggest() == config
        sign = -1 if number % 2 else 1
        with warnings.catch_warnings(action="error"):
            huge.observe(Result(number, config, 1, 1.7e308 * sign, final=True))
        small.observe(Result(number, config, 1, 1.0 * sign, final=True))
    assert suggested(huge, 5) == suggested(small, 5)


# ----------------------------------------------------------------------------------------------------------------- bins


@settings(deadline=None, max_examples=50)
@given(spaces, st.integers(0, 99))
def test_every_domain_is_respected_before_and_after_learning(space: Space, seed: int) -> None:
    searcher = ReMAADESearcher()
    searcher.setup(space, "min", seed)
    for number in range(BATCH + 2):
        config = searcher.suggest()
        assert space.answers(config) is not None
        searcher.observe(Result(number, config, 1, float(number % 3), final=True))


@settings(deadline=None)
@given(spaces, st.integers(0, 99))
def test_a_configuration_drawn_from_bins_lies_in_them(space: Space, seed: int) -> None:
    vectors, rng = Vectors(space), np.random.default_rng(seed)
    bins = Bins(vectors.axes)
    row = bins.row(vectors.draw(rng))
    again = bins.row(vectors.settle(bins.vector(row, rng)[None])[0])
    assert row.tolist() == again.tolist()
    assert all(len(share) <= BINS or axis.is_choice for share, axis in zip(bins.shares, vectors.axes, strict=True))


@pytest.mark.parametrize(
    ("domain", "count"),
    [
        (uniform(0, 1), BINS),
        (loguniform(1e-4, 1), BINS),
        (randint(0, 5), 5),
        (quniform(0, 1, 0.25), 5),
        (randint(0, BINS), BINS),
        (quniform(0, 1.5, 0.1), BINS),
        (randint(0, 1000), BINS),
        (lograndint(8, 129), BINS),
        (lograndint(1, 5), 4),
        (choice([*range(40)]), 40),
        (randint(3, 4), 1),
    ],
    ids=str,
)
def test_an_axis_has_as_many_bins_as_values_but_not_too_many(domain: Any, count: int) -> None:
    assert [len(share) for share in Bins(Vectors(Space({"x": domain})).axes).shares] == [count]


def test_bins_of_a_logarithmic_axis_span_the_same_factor() -> None:
    vectors, rng = Vectors(Space({"x": loguniform(1e-8, 1)})), np.random.default_rng(0)
    bins = Bins(vectors.axes)
    values = [vectors.config(bins.vector(np.array([k]), rng))["x"] for k in range(BINS)]
    assert [math.floor(2 * (math.log10(value) + 8)) for value in values] == [*range(BINS)]


@pytest.mark.parametrize("domain", [loguniform(1e-3, 1), quniform(0, 1, 0.25), lograndint(1, 40)], ids=str)
def test_the_first_batch_is_drawn_as_the_space_draws(domain: Any) -> None:
    searcher, source = make({"x": domain}), random.Random(0)
    drawn = np.array([config["x"] for config in suggested(searcher, 2000)])
    sampled = np.array([searcher.space.sample(source)["x"] for _ in range(2000)])
    for value in sampled[:30]:
        assert np.mean(drawn <= value) == pytest.approx(np.mean(sampled <= value), abs=0.06)


# -------------------------------------------------------------------------------------------------------------- density


def test_the_density_of_all_rows_sums_to_one_in_every_order() -> None:
    counts, rng = [2, 3, 4], np.random.default_rng(0)
    policy = MaskedAttention([np.full(count, 1 / count) for count in counts], [False, True, False], rng)
    with torch.no_grad():
        policy.out.add_(torch.from_numpy(rng.normal(0, 2, policy.out.shape).astype(np.float32)))
    rows = torch.from_numpy(np.stack([*np.ndindex(*counts)]))
    for places in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        place = torch.tensor(places)
        before = (place[None, :] < place[:, None]).expand(len(rows), 3, 3)
        logs = policy.tables().logits(slice(None), rows, before).log_softmax(dim=2)
        p = logs.gather(2, rows[..., None])[..., 0].sum(dim=1).exp()
        assert float(p.detach().sum()) == pytest.approx(1.0, abs=1e-5)
        assert float(p.detach().max()) > 2 / len(rows), "it is not even"


def test_an_axis_depends_on_those_before_it_only() -> None:
    rng = np.random.default_rng(0)
    policy = MaskedAttention([np.full(3, 1 / 3)] * 3, [False] * 3, rng)
    with torch.no_grad():
        policy.out.fill_(1.0)
        policy.out[:, 0] = -2.0
    before = torch.tensor([[False, False, False], [True, False, False], [True, True, False]])[None]
    rows = torch.tensor([[0, 1, 2]])

    def logits(axis: int, changed: int) -> list[float]:
        other = rows.clone()
        other[0, changed] = 0 if changed else 2
        found: list[float] = policy.tables().logits(slice(None), other, before)[0, axis].tolist()
        return found

    original = policy.tables().logits(slice(None), rows, before)[0].tolist()
    for axis in range(3):
        for changed in range(3):
            assert (logits(axis, changed) == pytest.approx(original[axis])) == (changed >= axis)


# ------------------------------------------------------------------------------------------------- repeating, resuming


@pytest.mark.parametrize("trials", [0, 5, BATCH, 3 * BATCH + 2])
def test_a_pickled_copy_goes_on_as_the_original(trials: int) -> None:
    original = taught(make(LINE), trials)
    copied = pickle.loads(pickle.dumps(original))
    for number in range(trials, trials + 3 * BATCH):
        config = original.suggest()
        assert config is not None and copied.suggest() == config
        for searcher in (original, copied):
            searcher.observe(Result(number, config, 1, config["x"], final=True))


def test_what_was_recorded_stands_and_is_what_it_learns_from() -> None:
    original, replayed, elsewhere = make(LINE), make(LINE), make(LINE)
    for number in range(BATCH):
        config = original.suggest()
        other = {"x": 1 - config["x"]}
        replayed.resuggest(config)
        elsewhere.resuggest(other)
        original.observe(Result(number, config, 1, config["x"], final=True))
        replayed.observe(Result(number, config, 1, config["x"], final=True))
        elsewhere.observe(Result(number, other, 1, config["x"], final=True))
    after = suggested(original, 20)
    assert suggested(replayed, 20) == after
    assert suggested(elsewhere, 20) != after


def test_a_recorded_configuration_that_the_space_does_not_hold_teaches_nothing() -> None:
    searcher = make(LINE)
    searcher.resuggest({"y": 3})
    searcher.observe(Result(0, {"y": 3}, 1, 0.0, final=True))
    taught_later = searcher.suggest()
    searcher.observe(Result(1, taught_later, 1, 0.0, final=True))
    assert taught_later.keys() == {"x"}


def test_the_global_state_of_torch_is_left_alone() -> None:
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    taught(make(LINE), 2 * BATCH)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("domain", [3, choice([3]), randint(3, 4)], ids=str)
def test_a_space_with_one_configuration_is_no_trouble(domain: Any) -> None:
    searcher = make({"x": domain})
    for number in range(2 * BATCH):
        config = searcher.suggest()
        assert config == {"x": 3}
        searcher.observe(Result(number, config, 1, 1.0, final=True))


def test_where_torch_is_missing_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from elastune.search import make_searcher\n"
        "from elastune.errors import SpecError\n"
        "make_searcher('bohb')\n"
        "try: make_searcher('remaade')\n"
        "except SpecError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "searcher='remaade': needs PyTorch" in done.stdout
    assert "pip install 'elastune[torch]'" in done.stdout


def test_a_grid_is_refused() -> None:
    with pytest.raises(SpecError, match="searcher='remaade': cannot go through a grid_search"):
        make({"x": {"grid_search": [1, 2]}})


def test_unused_axes_have_no_bin() -> None:
    vectors = Vectors(Space(CONDITIONAL))
    rng = np.random.default_rng(0)
    rows = np.stack([Bins(vectors.axes).row(vectors.draw(rng)) for _ in range(20)])
    assert ((rows[:, 1] == UNUSED) == (rows[:, 0] == 1)).all()
    assert ((rows[:, 2] == UNUSED) == (rows[:, 0] == 0)).all()


def test_a_choice_of_many_values_makes_no_large_policy() -> None:
    shares = [np.full(2000, 1 / 2000), *[np.full(BINS, 1 / BINS)] * 9]
    for numeric in ([False] * 10, [False, *[True] * 9]):
        policy = MaskedAttention(shares, numeric, np.random.default_rng(0))
        assert len(pickle.dumps(policy)) < 4e6
        assert policy.tables().out.shape == (10, 2000, 16)
