"""Ultron's training interface: a class with `score(self, hyperparameters, checkpoint_path, resume)`.

`score` trains a model and returns what it is worth: a number, reported as the metric `score`, or a dict of numbers. It
writes what it needs to go on to `checkpoint_path`, a folder on this machine: a folder for each epoch, under any name,
and into that a file `DONE` when it is complete. That is saved while training goes on, the newest in the order of the
names with their numbers counted as numbers. A trial that is begun again finds its newest epoch there, with `resume`
true.

A trial on several devices calls `score` in one process, which has them all.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import math
import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from elastune.errors import SpecError
from elastune.messages import Config
from elastune.record.scores import Question
from elastune.worker.code_name import attributes_hash, code_hash, is_loaded, source_folders, source_hash, state_hash
from elastune.worker.session import Trainable, backing, get_checkpoint, get_context, report

DONE = "DONE"
"""The file in the folder of an epoch that says that it is complete."""
METRIC, CACHED = "score", "cached"
LOOK_S = 0.5
_WITH = " with "
_INTERFACE = "score(self, hyperparameters, checkpoint_path, resume)"


@dataclass(frozen=True, slots=True)
class Scorer:
    """A training function made of a model: a class, of which each trial gets an object, or an object, of which each
    gets a copy. `code` is a name for what it is made of.
    """

    model: object
    code: str
    folders: tuple[str, ...] = ()
    """Where its source is."""

    def __call__(self, config: Config) -> None:
        if get_context().rank > 0:
            return
        restored, behind = get_checkpoint(), backing()
        if behind is None:
            with _folder(f"by itself in process {os.getpid()}") as folder:
                report(self._score(config, folder, resume=False))
            return
        question = Question(config, behind.seed, self.code)
        if behind.scores is not None and (known := behind.scores.find(question)) is not None:
            print(f"elastune: the score of this configuration is known from {behind.scores.url}: it is not trained")
            report({**known, CACHED: 1})
            return
        behind.take_devices()
        with _folder(behind.name) as folder:
            resume = _put(restored, folder)
            with Syncer(folder, behind.save, behind.warn):
                metrics = self._score(config, folder, resume)
            if behind.scores is not None and all(map(math.isfinite, metrics.values())):
                behind.scores.keep(question, dict(metrics))
            report(metrics)

    def _score(self, config: Config, folder: Path, resume: bool) -> dict[str, float]:
        model: Any = self.model() if inspect.isclass(self.model) else copy.deepcopy(self.model)
        return _metrics(model.score(copy.deepcopy(config), str(folder), resume), type(model).__name__)


Save = Callable[[Path, Callable[[], bool]], bool]
"""Keeps a folder, if it is still whole when that is done, and says whether it was."""


class Syncer:
    """Saves finished epochs from a thread of its own. Only the newest counts: where saving is slower than training,
    those in between are left out.
    """

    def __init__(self, folder: Path, save: Save, warn: Callable[[str], None]) -> None:
        self._folder, self._save, self._warn = folder, save, warn
        self._saved = _newest(folder)  # what was restored
        self._over = threading.Event()
        self._gone: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True, name="elastune-sync")

    def __enter__(self) -> Syncer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """What is complete by now is saved, whether training has come to its end or failed. Where there is no driver
        any more to be told of it, all is over: a score would be kept whose last epochs are not.
        """
        self._over.set()
        self._thread.join()
        if self._gone is not None:
            raise self._gone

    def _run(self) -> None:
        try:
            while not self._over.wait(LOOK_S):
                self._look()
            self._look()
        except BaseException as gone:  # no error of saving: those are told, and training goes on
            self._gone = gone

    def _look(self) -> None:
        try:
            newest = _newest(self._folder)
            if newest is None or (self._saved is not None and newest <= self._saved):
                return
            path = self._folder / newest.name
            if self._save(path, lambda: _done_ns(path) == newest.done_ns):
                self._saved = newest
        except Exception as error:  # training goes on, and the next look tries again
            print(f"elastune: the newest epoch is not saved: {error}", file=sys.stderr)
            if self._over.is_set():
                self._warn(f"the last epoch of a trial could not be saved: {error}")


@dataclass(frozen=True, slots=True, order=True)
class _Epoch:
    place: list[Any]
    done_ns: int
    """When it was said to be complete: a folder may be used again."""
    name: str


def _newest(folder: Path) -> _Epoch | None:
    """The newest complete epoch."""
    found = []
    for path in folder.iterdir():
        if (done_ns := _done_ns(path)) is not None:
            place = [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", path.name)]
            found.append(_Epoch(place, done_ns, path.name))
    return max(found, default=None)


def _done_ns(epoch: Path) -> int | None:
    try:
        return (epoch / DONE).stat().st_mtime_ns
    except OSError:  # it is not complete, no folder, or just removed
        return None


def _put(restored: object, folder: Path) -> bool:
    """Whether there was an epoch to go on from; it is in the folder now."""
    if not isinstance(restored, Path) or not restored.is_dir():
        return False
    shutil.move(restored, folder / restored.name)
    return True


@contextmanager
def _folder(trial: str) -> Iterator[Path]:
    """A fresh folder on this machine. What an attempt has left behind that was killed here is removed."""
    name = hashlib.sha256(trial.encode()).hexdigest()[:16]
    parent = Path(tempfile.gettempdir(), f"elastune-score-{os.getuid()}-{name}")
    shutil.rmtree(parent, ignore_errors=True)
    try:
        parent.mkdir(mode=0o700)
    except FileExistsError:  # somebody else's, or one that is still written to
        parent = Path(tempfile.mkdtemp(prefix="elastune-score-"))
    try:
        yield Path(tempfile.mkdtemp(dir=parent))
    finally:
        shutil.rmtree(parent, ignore_errors=True)


def _metrics(returned: object, model: str) -> dict[str, float]:
    given = returned if isinstance(returned, Mapping) else {METRIC: returned}
    metrics = {name: _number(value) for name, value in given.items()}
    if not metrics or any(number is None or not isinstance(name, str) for name, number in metrics.items()):
        raise SpecError(
            f"{model}.score returned {returned!r}: must be a number, or a dict of names and numbers such as "
            f"{{'{METRIC}': 0.9}}"
        )
    return {name: number for name, number in metrics.items() if number is not None}


def _number(value: Any) -> float | None:
    """A plain number; that of an array or a tensor that has but one."""
    if hasattr(value, "item"):
        try:
            value = value.item()
        except (ValueError, RuntimeError):
            return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


# ------------------------------------------------------------------------------------------------- what the user gives


def is_model(trainable: object) -> bool:
    if inspect.isroutine(trainable) or issubclass(_kind(trainable), Trainable):
        return False
    return callable(getattr(trainable, "score", None))


def prepared(trainable: object) -> object:
    """A model as a training function, with a name for its code as it is now; anything else as it is."""
    if isinstance(trainable, Scorer):
        return as_scorer(trainable.model) if is_loaded(_kind(trainable.model)) else _renamed(trainable)
    return as_scorer(trainable) if is_model(trainable) else trainable


def _renamed(scorer: Scorer) -> Scorer:
    """Of a class that was kept with the run itself, as it was when that began: what it imports is what is there now."""
    own, now = scorer.code.partition(_WITH)[0], source_hash(scorer.folders)
    return scorer if now is None else replace(scorer, code=own if f" {now} " in f"{own} " else f"{own}{_WITH}{now}")


def _kind(model: object) -> type:
    return model if inspect.isclass(model) else type(model)


def as_scorer(model: Any) -> Scorer:
    kind = _kind(model)
    bound = kind is not model or isinstance(inspect.getattr_static(model, "score"), staticmethod | classmethod)
    try:
        inspect.signature(model.score).bind(*[None] * (3 if bound else 4))
    except TypeError as error:
        raise SpecError(f"trainable={kind.__name__}: its score must be {_INTERFACE}: {error}") from None
    if inspect.isclass(model):
        try:
            inspect.signature(model).bind()
        except TypeError as error:
            raise SpecError(
                f"trainable={kind.__name__}: an object of it must be made without arguments: {error}"
            ) from None
        if missing := sorted(getattr(model, "__abstractmethods__", ())):
            raise SpecError(f"trainable={kind.__name__}: {', '.join(missing)} missing: is abstract")
    parts = [f"{kind.__module__}.{kind.__qualname__}", code_hash(kind), attributes_hash(kind)]
    if kind is not model:
        parts.append(state_hash(model))
    return Scorer(model, " ".join(filter(None, parts)), source_folders(kind))
