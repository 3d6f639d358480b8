"""Several trainables in one: where experiments share the workers, a trial trains with that of its own."""

from __future__ import annotations

from collections.abc import Mapping

import cloudpickle

from elastune.errors import SpecError
from elastune.messages import Config, experiment_of
from elastune.worker.session import Trainer, as_trainer, get_context


class ByExperiment:
    """Each is loaded when it is first needed: one that cannot be is no harm to the others."""

    def __init__(self, code: Mapping[str, bytes]) -> None:
        self._code = dict(code)
        self._loaded: dict[str, Trainer] = {}

    def __call__(self, config: Config) -> object:
        return self._trainer(experiment_of(get_context().trial_id))(config)

    def _trainer(self, experiment: str) -> Trainer:
        if experiment not in self._loaded:
            try:
                self._loaded[experiment] = as_trainer(cloudpickle.loads(self._code[experiment]))
            except Exception as error:
                raise SpecError(
                    f"the training code of {experiment} cannot be loaded in a worker: {type(error).__name__}: {error}"
                ) from error
        return self._loaded[experiment]
