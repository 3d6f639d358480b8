"""A class with Ultron's `score` in a real worker: scored, saved while it trains, killed and begun again."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.s3 import BUCKET, s3_server
from tests.worker.alone import WorkerAlone

from elastune import messages as m
from elastune.errors import SpecError
from elastune.record.checkpoints import CheckpointStore
from elastune.record.scores import Question, Scores
from elastune.worker import code_name
from elastune.worker.backing import Backing
from elastune.worker.code_name import CODE, code_hash
from elastune.worker.process import DriverGone
from elastune.worker.session import Trainable, as_trainer
from elastune.worker.setup import WorkerSetup
from elastune.worker.ultron import Save, Scorer, Syncer, as_scorer, prepared

Work = Callable[..., WorkerAlone]


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(str(tmp_path / "run" / "checkpoints"))


@pytest.fixture
def work(tmp_path: Path, store: CheckpointStore) -> Iterator[Work]:
    workers: list[WorkerAlone] = []

    def make(trainable: object, **setup: Any) -> WorkerAlone:
        workers.append(WorkerAlone(trainable, tmp_path, setup.pop("store", store), **setup))
        return workers[-1]

    yield make
    for worker in workers:
        worker.kill()


def model(folder: Path) -> type:
    """Goes through ten epochs; for each above three it waits until there is a file of its number."""

    class Model:
        def score(self, hyperparameters: Any, checkpoint_path: str, resume: bool) -> float:
            with open(folder / "calls", "a") as calls:
                calls.write(f"{resume} {' '.join(sorted(os.listdir(checkpoint_path)))}\n")
            done = max(map(int, os.listdir(checkpoint_path))) if resume else 0
            for epoch in range(done + 1, 11):
                while epoch > 3 and not (folder / str(epoch)).exists():
                    time.sleep(0.01)
                place = os.path.join(checkpoint_path, str(epoch))
                os.mkdir(place)
                with open(os.path.join(place, "weights"), "w") as file:
                    file.write(f"of epoch {epoch}")
                with open(os.path.join(place, "DONE"), "w"):
                    pass
            return 0.75

    return Model


def let_through(folder: Path, last: int = 10) -> None:
    for epoch in range(last + 1):
        (folder / str(epoch)).touch()


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines()


def saved_epoch(worker: WorkerAlone, name: str) -> m.Checkpoint:
    """The checkpoint of that epoch; those before it may be left out."""
    while (found := worker.store.load(saved := worker.until(m.TrialCheckpointed).checkpoint)).name != name:
        pass
    assert (found / "weights").read_text() == f"of epoch {name}"
    return saved


def test_a_score_killed_in_the_middle_goes_on_from_its_last_saved_epoch(tmp_path: Path, work: Work) -> None:
    worker = work(model(tmp_path))
    worker.begin(until=1)
    saved = saved_epoch(worker, "3")
    assert (saved.iteration, saved.part > 0) == (0, True)
    worker.kill()

    worker = work(model(tmp_path))
    worker.begin(until=1, saved=saved, attempt=2)
    let_through(tmp_path)
    assert worker.until(m.TrialReported).metrics == {"score": 0.75}
    assert calls(tmp_path) == ["False ", "True 3"]
    later = [event.checkpoint for event in worker.events if isinstance(event, m.TrialCheckpointed)]
    assert later and all(checkpoint.part > saved.part for checkpoint in later), "retention tells them apart"
    assert worker.store.load(later[-1]).name == "10", "the last is safe before the score is told"


def test_epochs_are_saved_to_an_object_store_while_score_goes_on(
    tmp_path: Path, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_server(monkeypatch):
        far = CheckpointStore(f"s3://{BUCKET}/run")
        worker = work(model(tmp_path), store=far)
        worker.begin(until=1)
        saved = saved_epoch(worker, "3")
        assert saved in far.list()
        let_through(tmp_path)
        assert worker.until(m.TrialReported).metrics == {"score": 0.75}
        worker.until(m.TrialPaused)
        worker.begin(until=1, trial="u")
        assert worker.until(m.TrialReported).metrics == {"score": 0.75, "cached": 1}


def test_a_damaged_epoch_is_told_and_score_is_not_called(tmp_path: Path, work: Work, store: CheckpointStore) -> None:
    worker = work(model(tmp_path))
    worker.begin(until=1)
    saved = saved_epoch(worker, "3")
    worker.kill()
    Path(store.url, saved.path).write_bytes(b"torn")
    worker = work(model(tmp_path))
    worker.begin(until=1, saved=saved, attempt=2)
    assert worker.until(m.CheckpointDamaged).checkpoint == saved
    assert calls(tmp_path) == ["False "]


def test_a_score_that_is_known_is_not_computed_again(tmp_path: Path, work: Work) -> None:
    let_through(tmp_path)
    worker = work(model(tmp_path), seed=4)
    reported = []
    for trial in ("t", "u"):
        worker.begin(until=1, trial=trial)
        reported.append(worker.until(m.TrialReported).metrics)
        worker.until(m.TrialPaused)
    assert reported == [{"score": 0.75}, {"score": 0.75, "cached": 1}]
    assert len(calls(tmp_path)) == 1
    assert "is known" in (tmp_path / "logs" / "u.log").read_text()

    other_seed = work(model(tmp_path), seed=5)
    other_seed.begin(until=1)
    assert other_seed.until(m.TrialReported).metrics == {"score": 0.75}
    assert len(calls(tmp_path)) == 2


@pytest.mark.parametrize("setup", [{"reproducible": True}, {"known_scores": False}])
def test_where_all_is_to_be_computed_scores_are_neither_taken_nor_kept(
    tmp_path: Path, work: Work, setup: dict[str, bool]
) -> None:
    let_through(tmp_path)
    worker = work(model(tmp_path), **setup)
    for trial in ("t", "u"):
        worker.begin(until=1, trial=trial)
        assert worker.until(m.TrialReported).metrics == {"score": 0.75}
        worker.until(m.TrialPaused)
    assert len(calls(tmp_path)) == 2 and not (tmp_path / "run" / "scores").exists()


def test_what_is_complete_is_saved_also_when_score_fails(tmp_path: Path, work: Work) -> None:
    class Fails:
        def score(self, hyperparameters: Any, checkpoint_path: str, resume: bool) -> float:
            os.mkdir(f"{checkpoint_path}/1")
            Path(checkpoint_path, "1", "DONE").touch()
            raise ValueError("out of luck")

    worker = work(Fails)
    worker.begin(until=1)
    assert "out of luck" in worker.until(m.TrialFailed).error
    (saved,) = (event.checkpoint for event in worker.events if isinstance(event, m.TrialCheckpointed))
    assert worker.store.load(saved).name == "1"


def test_nothing_is_left_on_the_disk_of_the_machine(
    tmp_path: Path, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    worker = work(model(tmp_path))
    worker.begin(until=1)
    saved = saved_epoch(worker, "3")
    worker.kill()
    assert list(scratch.glob("elastune-score-*")), "a killed worker cannot tidy up"
    let_through(tmp_path)
    worker = work(model(tmp_path))
    worker.begin(until=1, saved=saved, attempt=2)
    worker.until(m.TrialPaused)
    worker.begin(until=1, trial="next")  # the one before has left by then
    worker.until(m.TrialPaused)
    assert not list(scratch.glob("elastune-score-*"))


# ------------------------------------------------------------------------------------------------- without a worker


class Constant:
    returns: Any = 0.5

    def score(self, hyperparameters: Any, checkpoint_path: str, resume: bool) -> Any:
        assert not resume and os.listdir(checkpoint_path) == []
        return self.returns


@pytest.mark.parametrize(
    ("returns", "said"), [(0.5, "score=0.5"), (3, "score=3"), ({"score": 1.0, "auc": 0.25}, "score=1.0 auc=0.25")]
)
def test_a_model_can_be_tried_by_itself(returns: Any, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    tried = Constant()
    tried.returns = returns
    as_trainer(tried)({"lr": 0.1})
    assert capsys.readouterr().out == f"{said}\n"


@pytest.mark.parametrize("returns", [None, "0.5", True, {}, {"score": "high"}, [0.5], {1: 0.5}])
def test_what_is_no_score_is_an_error_that_shows_it(returns: Any) -> None:
    tried = Constant()
    tried.returns = returns
    with pytest.raises(SpecError, match=r"Constant.score returned .*: must be a number, or a dict"):
        as_trainer(tried)({})


class TooFew:
    def score(self, hyperparameters: Any) -> float:
        return 0.0


class NeedsArguments(Constant):
    def __init__(self, folder: str) -> None: ...


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (TooFew, r"trainable=TooFew: its score must be score\(self, hyperparameters, checkpoint_path, resume\)"),
        (TooFew(), "trainable=TooFew: its score"),
        (NeedsArguments, "trainable=NeedsArguments: an object of it must be made without arguments: .*folder"),
    ],
)
def test_a_model_that_cannot_be_called_is_refused(given: object, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        as_trainer(given)


class StepsAndScores(Trainable):
    """Its score is no business of Ultron's."""

    def setup(self, config: Any) -> None: ...

    def step(self) -> dict[str, float]:
        return {"loss": self.score()}

    def score(self) -> float:
        return 0.5

    def save(self) -> None: ...

    def load(self, checkpoint: Any) -> None: ...


def test_a_trainable_may_have_a_score_of_its_own() -> None:
    assert prepared(StepsAndScores) is StepsAndScores


def test_an_object_is_copied_for_each_trial() -> None:
    class Counts:
        count = 0

        def score(self, hyperparameters: Any, checkpoint_path: str, resume: bool) -> float:
            self.count += 1
            assert self.count == 1
            return 0.0

    train = as_trainer(Counts())
    train({})
    train({})


def backing(store: CheckpointStore, told: list[Any], slots: int = 1, **setup: Any) -> Backing:
    """Of a worker that does nothing but speak."""
    made = WorkerSetup(b"", (), store, Path("logs"), 0.0, 0, **setup)
    worker: Any = SimpleNamespace(setup=made, tell=told.append, threads=lambda share: made.threads)
    devices = tuple(m.Slot("n0", device) for device in range(slots))
    return Backing(worker, m.StartTrial(0, "t", 1, 0, {}, 0, None, 1, True, devices))


def test_an_epoch_that_has_changed_while_it_was_saved_is_dropped_and_not_told(
    tmp_path: Path, store: CheckpointStore
) -> None:
    epochs(tmp_path, "latest")
    told: list[m.TrialCheckpointed] = []
    behind = backing(store, told)
    assert not behind.save(tmp_path / "latest", lambda: False)
    assert (told, store.list()) == ([], [])
    assert behind.save(tmp_path / "latest", lambda: True)
    assert [event.checkpoint for event in told] == store.list() and len(told) == 1


@pytest.mark.parametrize(("reproducible", "threads"), [(False, [6]), (True, [])])
def test_score_has_the_threads_of_all_its_devices_but_one_thread_where_sums_must_have_one_order(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch, reproducible: bool, threads: list[int]
) -> None:
    used: list[int] = []
    monkeypatch.setattr("elastune.worker.backing.use_threads", used.append)
    backing(store, [], slots=2, threads=3, reproducible=reproducible).take_devices()
    assert used == threads


def epochs(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "DONE").touch()


def keep_in(saved: list[str]) -> Save:
    def save(folder: Path, is_whole: Callable[[], bool]) -> bool:
        saved.append(folder.name)
        return True

    return save


def test_epochs_are_in_the_order_of_their_numbers_and_only_the_newest_is_saved(tmp_path: Path) -> None:
    saved: list[str] = []
    epochs(tmp_path, "epoch-2")
    (tmp_path / "file").touch()
    with Syncer(tmp_path, keep_in(saved), lambda text: None):
        epochs(tmp_path, "epoch-9", "epoch-10")
        (tmp_path / "epoch-11").mkdir()
    assert saved == ["epoch-10"], "11 is not complete, and 2 was there before"


def test_a_folder_that_is_used_again_is_saved_again(tmp_path: Path) -> None:
    saved: list[str] = []
    epochs(tmp_path, "latest")
    with Syncer(tmp_path, keep_in(saved), lambda text: None):
        os.utime(tmp_path / "latest" / "DONE", (2e9, 2e9))
    assert saved == ["latest"]


@pytest.mark.parametrize("again", [False, True])
def test_an_epoch_is_not_whole_if_its_folder_was_used_again_while_it_was_saved(tmp_path: Path, again: bool) -> None:
    saved: list[bool] = []

    def slow(folder: Path, is_whole: Callable[[], bool]) -> bool:
        if not saved:
            (folder / "DONE").unlink()
            if again:
                epochs(tmp_path, "1")
                os.utime(folder / "DONE", (2e9, 2e9))
        saved.append(is_whole())
        return saved[-1]

    syncer = Syncer(tmp_path, slow, lambda text: None)
    epochs(tmp_path, "1")
    syncer._look()
    epochs(tmp_path, "1")
    syncer._look()
    assert saved == [False, True], "the second time nobody disturbs"


def test_a_look_that_fails_is_not_the_last(tmp_path: Path) -> None:
    saved: list[str] = []
    folder = tmp_path / "folder"
    folder.mkdir()
    syncer = Syncer(folder, keep_in(saved), lambda text: None)
    folder.rmdir()
    syncer._look()
    folder.mkdir()
    epochs(folder, "1")
    syncer._look()
    assert saved == ["1"]


def test_where_there_is_no_driver_any_more_training_ends_before_its_score_is_kept(tmp_path: Path) -> None:
    def gone(folder: Path, is_whole: Callable[[], bool]) -> bool:
        raise DriverGone

    def score() -> float:
        with Syncer(tmp_path, gone, lambda text: None):
            epochs(tmp_path, "1")
        return 1.0  # a trial whose score is known is not trained again, and would never have its last epoch

    with pytest.raises(DriverGone):
        score()


def test_an_epoch_that_cannot_be_saved_is_a_warning_and_training_goes_on(tmp_path: Path) -> None:
    warnings: list[str] = []

    def full(folder: Path, is_whole: Callable[[], bool]) -> bool:
        raise OSError("disk full")

    with Syncer(tmp_path, full, warnings.append):
        epochs(tmp_path, "1")
    assert warnings == ["the last epoch of a trial could not be saved: disk full"]


MODEL = """
class Model:
    def __init__(self, depth=1): self.depth = depth
    def score(self, hyperparameters, checkpoint_path, resume): return 0.5
"""


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Writes a module with a class Model, and loads that."""
    before, folder = set(sys.modules), tmp_path / "code"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))

    def load(path: str) -> Any:
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(MODEL)
        name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        importlib.invalidate_caches()
        return importlib.import_module(name).Model

    yield load
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("at", "other"),
    [
        ("pk_of_test/model.py", "pk_of_test/layers.py"),
        ("pk_of_test/__init__.py", "pk_of_test/deep/layers.py"),
        ("pk_of_test/sub/__init__.py", "pk_of_test/layers.py"),
        ("pk_of_test/sub/model.py", "pk_of_test/runs/__init__.py"),
        ("module_of_test.py", "lib/net.py"),
    ],
)
def test_the_name_of_the_code_changes_with_any_file_of_its_package_or_folder(
    tmp_path: Path, load: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch, at: str, other: str
) -> None:
    kind, source = load(at), tmp_path / "code" / other
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text("width = 1")
    before = code_hash(kind)
    assert code_hash(kind) == before
    source.write_text("width = 2")
    assert code_hash(kind) != before
    monkeypatch.setenv(CODE, "of the service")
    assert code_hash(kind) == "of the service"


@pytest.mark.parametrize(
    "line",
    ["import common_of_test", "    import json, common_of_test.x as y", "from common_of_test.layers import width"],
)
@pytest.mark.parametrize("other", ["common_of_test.py", "common_of_test/layers.py"])
def test_the_name_of_the_code_changes_with_what_it_imports_from_elsewhere(
    tmp_path: Path, load: Callable[[str], Any], line: str, other: str
) -> None:
    kind, source = load("pk_of_test/model.py"), tmp_path / "code" / other
    source.parent.mkdir(exist_ok=True)
    source.write_text("width = 1\nimport far_of_test, numpy\nimport ...\n")
    far, unrelated = tmp_path / "code" / "far_of_test.py", tmp_path / "code" / "unrelated.py"
    (tmp_path / "code" / "pk_of_test" / "net.py").write_text(f"def build():\n{line}\n")
    names = []
    for changed, text in (
        (source, source.read_text()),
        (unrelated, ""),
        (source, "import far_of_test"),
        (far, "x = 1"),
    ):
        changed.write_text(text)
        importlib.invalidate_caches()
        names.append(code_hash(kind))
    assert names[0] == names[1] and len(set(names)) == 3


def test_the_name_of_the_code_changes_with_the_values_of_the_class(load: Callable[[str], Any]) -> None:
    made = load("module_of_test.py")
    names = []
    for epochs in (1, 2, {"warm": 1}, {"warm": 1}):
        made.epochs = epochs
        names.append(as_scorer(made).code)
    assert names[2] == names[3] and len(set(names)) == 3
    made.epochs = threading.Lock()  # of which nothing can be told
    assert as_scorer(made).code != as_scorer(made).code


@pytest.mark.parametrize("other", [".hidden/a.py", "env/lib/a.py", "runs/exp/a.py", "data.csv"])
def test_what_is_no_part_of_the_code_does_not_change_its_name(
    tmp_path: Path, load: Callable[[str], Any], other: str
) -> None:
    kind, file = load("module_of_test.py"), tmp_path / "code" / other
    (tmp_path / "code" / "env").mkdir()
    (tmp_path / "code" / "env" / "pyvenv.cfg").touch()
    before = code_hash(kind)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("width = 1")
    assert code_hash(kind) == before


def test_where_there_is_too_much_to_look_through_nothing_is_taken_for_the_same(
    load: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = load("module_of_test.py")
    monkeypatch.setattr(code_name, "MOST_FILES", 0)
    assert code_hash(kind) != code_hash(kind)


def test_objects_of_one_class_have_one_name_if_they_hold_the_same(load: Callable[[str], Any]) -> None:
    made = load("module_of_test.py")
    one, two, again = (as_scorer(made(depth)).code for depth in (1, 2, 1))
    assert one == again != two


def test_a_run_that_goes_on_has_the_name_of_the_code_there_is_now(tmp_path: Path, load: Callable[[str], Any]) -> None:
    begun = as_scorer(load("pk_of_test/model.py"))
    (tmp_path / "code" / "pk_of_test" / "layers.py").write_text("width = 1")
    goes_on = prepared(pickle.loads(pickle.dumps(begun)))
    assert isinstance(goes_on, Scorer) and goes_on.code == as_scorer(begun.model).code != begun.code


@pytest.mark.parametrize("make", [lambda kind: kind, lambda kind: kind(2)], ids=["class", "object"])
def test_a_class_that_was_kept_with_the_run_has_its_name_and_that_of_what_it_imports(
    tmp_path: Path, load: Callable[[str], Any], make: Callable[[Any], object]
) -> None:
    begun = as_scorer(make(load("module_of_test.py")))
    del sys.modules["module_of_test"]  # it is not loaded where the run goes on
    other = tmp_path / "code" / "layers.py"

    def goes_on(scorer: Scorer) -> Scorer:
        renamed = prepared(scorer)
        assert isinstance(renamed, Scorer)
        return renamed

    assert goes_on(begun).code == begun.code
    other.write_text("width = 1")
    changed = goes_on(begun)
    assert changed.code != begun.code and goes_on(changed).code == changed.code
    other.unlink()
    assert goes_on(changed).code == begun.code


# ------------------------------------------------------------------------------------------------------ known scores


def test_a_score_is_known_for_the_same_configuration_seed_and_code_only(tmp_path: Path) -> None:
    scores = Scores(str(tmp_path / "scores"))
    asked = Question({"lr": 0.1, "layers": [1, 2]}, 0, "code")
    assert scores.find(asked) is None
    scores.keep(asked, {"score": 0.5})
    assert scores.find(Question({"layers": [1, 2], "lr": 0.1}, 0, "code")) == {"score": 0.5}
    others = [({"lr": 0.2, "layers": [1, 2]}, 0, "code"), (asked.config, 1, "code"), (asked.config, 0, "other")]
    assert [scores.find(Question(*other)) for other in others] == [None] * 3


def test_a_damaged_score_is_not_known_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scores, asked = Scores(str(tmp_path)), Question({}, 0, "code")
    (tmp_path / f"{asked.name}.json").write_text(json.dumps({"metrics": 3}))
    assert scores.find(asked) is None
    assert "cannot be read" in capsys.readouterr().err


def test_scores_that_cannot_be_written_are_no_harm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    Scores(str(tmp_path / "file" / "scores")).keep(Question({}, 0, "code"), {"score": 0.5})
    assert "cannot be written" in capsys.readouterr().err
