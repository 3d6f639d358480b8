"""Any Optuna sampler as a searcher, through Optuna's own ask and tell.

Optuna knows a trial that ended, failed or was pruned, but none that goes on after that. A trial that has not trained to
its end is told as pruned at its iteration; each later result of it is added as another trial with the same parameters.
Of one that still trains Optuna is told nothing: the same parameters several times would count as several opinions.

Optuna is imported only when such a searcher is used: the import takes longer than all the rest.
"""

from __future__ import annotations

import copy
import importlib.util
import inspect
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from elastune.errors import SpecError, did_you_mean
from elastune.messages import Config
from elastune.search.base import Result, Searcher, refuse_grid
from elastune.space import Choice, Domain, Float, Space
from elastune.spec import Mode

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.trial import Trial, TrialState

SAMPLERS = {"tpe": "TPESampler", "gp": "GPSampler", "cmaes": "CmaEsSampler", "qmc": "QMCSampler"}
_NEEDS = {"gp": ("scipy", "torch"), "cmaes": ("cmaes",), "qmc": ("scipy",)}


class OptunaSearcher(Searcher):
    """Suggests what an Optuna sampler suggests: "tpe", "gp", "cmaes", "qmc", or a sampler of the user's own making.

    A sampler by name gets the seed of the experiment. A sampler given as an object is used as it is, seed included;
    each run works on a copy of it.
    """

    def __init__(self, sampler: BaseSampler | str = "tpe") -> None:
        if isinstance(sampler, str):
            _check_name(sampler)
        self._sampler = sampler

    def setup(self, space: Space, mode: Mode, seed: int) -> None:
        import optuna

        refuse_grid(space, self._sampler if isinstance(self._sampler, str) else type(self._sampler).__name__)
        super().setup(space, mode, seed)
        with _quiet():
            sampler = _build(self._sampler, seed) if isinstance(self._sampler, str) else copy.deepcopy(self._sampler)
            direction = optuna.study.StudyDirection.MINIMIZE if mode == "min" else optuna.study.StudyDirection.MAXIMIZE
            self._study = optuna.create_study(sampler=sampler, direction=direction, study_name="elastune")
        self._trials: list[Trial | None] = []  # by the number of the suggestion
        self._told: dict[int, int] = {}  # the iteration of the last result of each trial
        self._exhausted = False

    def suggest(self) -> Config | None:
        if self._exhausted:
            return None
        trial = self._study.ask()
        self._trials.append(trial)
        return self._config(trial)

    def observe(self, result: Result) -> None:
        from optuna.trial import TrialState, create_trial

        trial = self._trials[result.number]
        if trial is None or result.trains or result.iteration <= self._told.get(result.number, -1):
            return
        first = result.number not in self._told
        self._told[result.number] = result.iteration
        value = result.value if result.value is not None and math.isfinite(result.value) else None
        if first:
            if value is not None and not result.final:
                trial.report(value, result.iteration)
            state = TrialState.FAIL if value is None else TrialState.COMPLETE if result.final else TrialState.PRUNED
            self._tell(trial, state, value if state == TrialState.COMPLETE else None)
        elif value is not None:
            self._study.add_trial(
                create_trial(
                    state=TrialState.COMPLETE if result.final else TrialState.PRUNED,
                    value=value,
                    params=trial.params,
                    distributions=trial.distributions,
                    intermediate_values={} if result.final else {result.iteration: value},
                )
            )

    def resuggest(self, recorded: Config | None) -> None:
        """Ask as before, which moves the sampler on; where its answer differs, the recorded one takes its place."""
        from optuna.trial import TrialState

        suggested = self.suggest()
        if suggested == recorded:
            return
        if suggested is not None and (trial := self._trials.pop()):
            self._tell(trial, TrialState.FAIL, None)
        if recorded is not None:
            answers = self.space.answers(recorded)
            # What the space does not hold, the sampler could not learn from.
            self._trials.append(None if answers is None else self._fixed(answers))

    def _config(self, trial: Trial) -> Config:
        return self.space.resolve(lambda name, domain: _ask(trial, name, domain))

    def _fixed(self, answers: dict[str, Any]) -> Trial:
        """A trial with these parameters, which the sampler did not choose."""
        params = {}

        def remember(name: str, domain: Domain) -> Any:
            answer = answers[name]
            params[name] = _categories(domain)[answer] if isinstance(domain, Choice) else answer
            return answer

        self.space.resolve(remember)
        self._study.enqueue_trial(params)
        trial = self._study.ask()
        self._config(trial)
        return trial

    def _tell(self, trial: Trial, state: TrialState, value: float | None) -> None:
        try:
            self._study.tell(trial, value, state)
        except RuntimeError as error:
            # How a sampler that counts combinations says that it has no more; the result itself is already stored.
            if "Study.stop" not in str(error):
                raise
            self._exhausted = True


def _ask(trial: Trial, name: str, domain: Domain) -> Any:
    if isinstance(domain, Choice):
        categories = _categories(domain)
        return categories.index(trial.suggest_categorical(name, categories))
    if isinstance(domain, Float):
        # Optuna warns about a last step that does not end at high.
        high = domain.high if domain.q is None else domain.step(domain.steps)
        return float(trial.suggest_float(name, domain.low, high, step=domain.q, log=domain.log))
    return int(trial.suggest_int(name, domain.low, domain.high - 1, log=domain.log))


def _categories(domain: Choice) -> Sequence[Any]:
    """What Optuna gets to choose from: the options, or their indices where it could not tell the options apart."""
    scalar = all(option is None or isinstance(option, bool | int | float | str) for option in domain.options)
    return domain.options if scalar and len(set(domain.options)) == len(domain.options) else range(len(domain.options))


def _check_name(name: str) -> None:
    if name not in SAMPLERS:
        raise SpecError(f"searcher={name!r}: {did_you_mean(name, SAMPLERS)}")
    for package in _NEEDS.get(name, ()):
        if importlib.util.find_spec(package) is None:
            raise SpecError(f"searcher={name!r}: needs the package {package}; run: pip install 'elastune[samplers]'")


def _build(name: str, seed: int) -> BaseSampler:
    import optuna

    make: Callable[..., BaseSampler] = getattr(optuna.samplers, SAMPLERS[name])
    options: dict[str, bool] = {}
    # What these draw at random is said in the documentation; they would say so again in every trial. TPE does not, and
    # an older Gaussian process cannot be told.
    if name != "tpe" and "warn_independent_sampling" in inspect.signature(make).parameters:
        options["warn_independent_sampling"] = False
    if name == "cmaes":  # a paused trial is told as pruned, and left to itself it would learn nothing from one
        options["consider_pruned_trials"] = True
    return make(seed=seed, **options)


@contextmanager
def _quiet() -> Iterator[None]:
    """No line in the log about a new study, no warning that a sampler is experimental; afterwards all is as it was."""
    from optuna.exceptions import ExperimentalWarning

    logger = logging.getLogger("optuna")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            yield
    finally:
        logger.setLevel(level)
