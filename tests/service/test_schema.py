"""Every route, with whatever a schema allows and does not allow: answers are as the document says, and never 5xx."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from schemathesis.checks import CheckFunction
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.service.made_jobs import Made, populate, simulated

from elastune.messages import Record, TrialCheckpointed
from elastune.results import checkpoint_store
from elastune.service.app import create_app
from elastune.tuner import Tuner

CHECKS: list[CheckFunction] = [
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


EXPERIMENT: dict[str, Any] = {
    "trainable": "package.module:train",
    "space": {"x": {"uniform": [0, 1]}},
    "metric": "loss",
    "algorithm": {"FIFO": {"n": 2, "R": 2}},
}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
FIELDS = [name for name in inspect.signature(Tuner).parameters if name != "trainable"]


@dataclass
class Described:
    schema: Any
    headers: dict[str, str]
    known: list[dict[str, str]]
    """What is there, by the names that paths have for it."""


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Described]:
    folder: Path = tmp_path_factory.mktemp("service")
    made = Made.in_folder(folder)
    token, jobs = made.token("a", "admin"), populate(made, "a")
    job = made.job("a")
    saved_by(made, job.id)
    schema = schemathesis.openapi.from_asgi("/openapi.json", create_app(made.service))
    headers = {"Authorization": f"Bearer {token}"}
    schema.config.update(headers=headers)
    there = [job, *(jobs[name] for name in ("running", "planned", "seed 0", "queued"))]
    known = [{"job": each.id, "trial": f"{each.name}-00000", "experiment": "exp-7c1", "tenant": "a"} for each in there]
    yield Described(schema, headers, known)
    made.service.database.close()


def saved_by(made: Made, job: str) -> None:
    """A run whose best trial has a checkpoint."""
    found, records = made.service.jobs.get(job), simulated()
    view = made.wrote(found, records[: len(records) // 2])
    best = view.best
    assert best is not None and best.best_iteration is not None
    store = checkpoint_store(made.service.places.run(job), view.started.checkpoints)
    checkpoint = store.save(1, trial=best.id, lineage=best.best_lineage or 0, iteration=best.best_iteration, attempt=9)
    made.wrote(found, [Record(view.at_s + 1, (TrialCheckpointed(best.id, 1, checkpoint),), (), ())])


def answers_of(operation: Any, known: list[dict[str, str]]) -> Counter[int]:
    """What it answers to whatever may be asked, partly of what is there."""
    answers: Counter[int] = Counter()

    @given(operation.as_strategy(), st.sampled_from([*known, None]))
    @settings(max_examples=40, suppress_health_check=list(HealthCheck), deadline=None)
    def holds(case: schemathesis.Case[Any], there: dict[str, str] | None) -> None:
        if there is not None and case.method == "GET":
            case.path_parameters |= {name: there[name] for name in case.path_parameters if name in there}
        answers[case.call_and_validate(checks=CHECKS).status_code] += 1

    holds()
    return answers


@pytest.mark.slow
def test_every_answer_is_as_it_is_described(described: Described) -> None:
    tried: dict[str, Counter[int]] = {}
    for found in described.schema.get_all_operations():
        operation = found.ok()
        if not operation.path.endswith("/events"):  # a stream has no end
            tried[f"{operation.method.upper()} {operation.path}"] = answers_of(operation, described.known)
    assert len(tried) >= 25
    unread = [name for name, answers in tried.items() if name.startswith("GET") and not answers[200]]
    assert not unread, f"nothing was read from {unread}"


@pytest.mark.slow
def test_an_experiment_that_is_good_but_for_a_field_is_taken_or_refused(described: Described) -> None:
    """What is made up as a whole is refused for the first thing that is missing, and what comes after is not tried."""
    answers: Counter[int] = Counter()
    operation = described.schema["/api/v1/jobs"]["POST"]

    @given(st.sampled_from(FIELDS), VALUES, st.none() | st.integers(1, 3))
    @example("seed", None, 2)
    @settings(max_examples=100, deadline=None)
    def holds(field: str, value: Any, seeds: int | None) -> None:
        body = {"spec": {**EXPERIMENT, field: value}, "seeds": seeds}
        case = operation.Case(body=body, media_type="application/json", headers=described.headers)
        answers[case.call_and_validate(checks=CHECKS).status_code] += 1

    holds()
    assert answers.keys() == {201, 422}
