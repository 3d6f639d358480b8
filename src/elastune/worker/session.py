"""What the user's training code calls: report, get_checkpoint, get_context, get_preemption_info, leave_if_preempted.

Outside of a trial they work too, so that a training function can be tried by itself: a report is printed, and there
is no checkpoint.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from elastune.errors import SpecError
from elastune.messages import Config, Metrics, to_scalar

if TYPE_CHECKING:
    from elastune.worker.backing import Backing

Trainer = Callable[[Config], object]


@dataclass(frozen=True, slots=True)
class Context:
    """Where the code runs. The seed belongs to the trial: it is the same after a restart.

    A trial on several devices runs in as many processes; `master` is an address at rank 0 where they can meet.
    """

    trial_id: str = "local"
    rank: int = 0
    world_size: int = 1
    seed: int = 0
    master: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class PreemptionInfo:
    """The process that the trial runs in will be ended: its machine is taken away, or the run is interrupted."""

    gone_in_s: float


class Elastic(Protocol):
    """Training that carries its state through a change of its workers without being called again."""

    def save(self) -> object: ...

    def reform(self) -> None:
        """The workers of the trial are others now: `get_context()` tells how many, and which one this is."""


class Session(Protocol):
    """A trial in progress, as the worker sees it."""

    context: Context

    def report(self, metrics: Metrics, checkpoint: object) -> None: ...

    def checkpoint(self) -> object: ...

    def attach(self, elastic: Elastic) -> None: ...

    def preemption(self) -> PreemptionInfo | None: ...

    def leave_if_preempted(self, checkpoint: object) -> None: ...

    def backing(self) -> Backing | None: ...


_session: Session | None = None


def set_session(session: Session | None) -> None:
    global _session
    _session = session


def report(metrics: Mapping[str, object], checkpoint: object = None) -> None:
    """Tell how the trial does, once per iteration.

    `checkpoint` is what the trial needs to go on from here: a function that returns it, which is called only when a
    checkpoint is needed; or the thing itself: any object that can be pickled, or a `pathlib.Path` to a file or a
    folder, which is saved at once.
    """
    clean = _clean(metrics)
    _check_checkpoint(checkpoint)
    if _session is None:
        print(" ".join(f"{name}={value}" for name, value in clean.items()))
    else:
        _session.report(clean, checkpoint)


def get_checkpoint() -> Any:
    """What was given to `report` as checkpoint when the trial was last saved; None when it starts from zero."""
    return None if _session is None else _session.checkpoint()


def attach(elastic: Elastic) -> None:
    """From now on `elastic` saves the trial, and workers that stay through a resize are not called again."""
    if _session is not None:
        _session.attach(elastic)


def get_preemption_info() -> PreemptionInfo | None:
    """Whether the trial must leave, and how soon; None as long as it need not. A look costs some microseconds.

    It saves and leaves at its next report anyway: this is for steps that take longer than the notice. A trial on
    several devices leaves at its reports only, where all its processes are at the same point: there it is always None.
    To be called by the thread that reports.
    """
    return None if _session is None else _session.preemption()


def leave_if_preempted(checkpoint: object) -> None:
    """In the middle of a step: when the trial must leave, save it now and leave; otherwise do nothing.

    `checkpoint` is as for `report`. The trial goes on elsewhere from just this, as one that has done as many iterations
    as it has reported: what it has done of the next one must be in the checkpoint. The `step` of a `Trainable` may call
    `leave_if_preempted(self.save)`. On several devices it does nothing, as `get_preemption_info` says.
    """
    _check_checkpoint(checkpoint)
    if _session is not None:
        _session.leave_if_preempted(checkpoint)


def backing() -> Backing | None:
    """For a trial that is one long step; None outside of a trial."""
    return None if _session is None else _session.backing()


def get_context() -> Context:
    return Context() if _session is None else _session.context


def _check_checkpoint(checkpoint: object) -> None:
    if callable(checkpoint) and hasattr(checkpoint, "state_dict"):
        name = type(checkpoint).__name__
        raise SpecError(f"checkpoint={name}: is a model, not a function that returns its state: give {name}.state_dict")


def _clean(metrics: Mapping[str, object]) -> Metrics:
    """Plain numbers and texts: a zero-dimensional array or tensor counts as its number."""
    if not isinstance(metrics, Mapping):
        raise SpecError(
            f"report() got {type(metrics).__name__}: must be a dict of names and numbers, such as {{'loss': 0.1}}"
        )
    clean: Metrics = {}
    for name, value in metrics.items():
        if hasattr(value, "item"):
            try:
                value = value.item()
            except (ValueError, RuntimeError) as error:
                raise SpecError(f"metric {name!r}: must be one number, not an array: {error}") from None
        if not isinstance(name, str) or not isinstance(value, bool | int | float | str):
            raise SpecError(f"metric {name!r}={value!r}: must be a number or a text with a name that is a text")
        if isinstance(value, int) and value.bit_length() > 63:
            value = float(value) if value.bit_length() < 1024 else math.copysign(math.inf, value)
        clean[name] = to_scalar(value) if isinstance(value, float) else value
    return clean


class Trainable(ABC):
    """Training as a class, for those who prefer it: `step` is one iteration, `save` and `load` carry its state."""

    @abstractmethod
    def setup(self, config: Config) -> None: ...

    @abstractmethod
    def step(self) -> Mapping[str, object] | None:
        """Train one iteration and return its metrics; None when there is nothing more to train."""

    @abstractmethod
    def save(self) -> object: ...

    @abstractmethod
    def load(self, checkpoint: Any) -> None: ...

    def reform(self) -> None:  # noqa: B027  one that trains alone has nothing to do
        """The workers of the trial are others now: `get_context()` tells how many, and which one this is."""


def as_trainer(trainable: object) -> Trainer:
    """The training function behind a trainable: a function of the configuration, a Trainable class, or a class or an
    object with the `score` of Ultron.
    """
    if inspect.isclass(trainable) and issubclass(trainable, Trainable):
        if missing := sorted(trainable.__abstractmethods__):
            raise SpecError(
                f"trainable={trainable.__name__}: {', '.join(missing)} missing; a Trainable needs setup, step, save "
                "and load"
            )
        return lambda config: _train_class(trainable, config)
    from elastune.worker.ultron import as_scorer, is_model  # which is made of what is here

    if is_model(trainable):
        return as_scorer(trainable)
    if inspect.isclass(trainable) or not callable(trainable):
        raise SpecError(
            f"trainable={trainable!r}: must be a function of one argument, the configuration, a subclass of Trainable, "
            "or a class with score(self, hyperparameters, checkpoint_path, resume)"
        )
    if inspect.isgeneratorfunction(trainable) or inspect.iscoroutinefunction(trainable):
        raise SpecError(f"trainable={trainable!r}: must be a plain function: no yield, no async")
    try:
        inspect.signature(trainable).bind({})
    except TypeError as error:
        raise SpecError(
            f"trainable={getattr(trainable, '__name__', trainable)!r}: must take one argument: {error}"
        ) from None
    except ValueError:  # a builtin without a signature
        pass
    return trainable


def _train_class(cls: type[Trainable], config: Config) -> None:
    trainable = cls()
    trainable.setup(config)
    attach(trainable)
    if (checkpoint := get_checkpoint()) is not None:
        trainable.load(checkpoint)
    while (metrics := trainable.step()) is not None:
        report(metrics)
