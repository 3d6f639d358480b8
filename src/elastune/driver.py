"""One run, from its folder to its end: begun, cut short, gone on with."""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import platform
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import cloudpickle

from elastune.allocate.planned import Planned
from elastune.cluster.base import Cluster
from elastune.control.controller import Controller
from elastune.control.course import BY_USER
from elastune.control.run import Loop, recover
from elastune.errors import RunFailed, SpecError, StorageError
from elastune.experiment import Experiment
from elastune.messages import Record, RunStarted, decode_record
from elastune.record.checkpoints import CheckpointStore
from elastune.record.journal import Journal, MemoryJournal, SqlJournal
from elastune.record.projection import RunView
from elastune.reporting.progress import Progress
from elastune.reporting.tables import best_text
from elastune.results import Result, checkpoint_store
from elastune.run_folder import MACHINES, closing, new_folder, only_driver, open_journal, release_leftovers
from elastune.signals import interruptible
from elastune.simulation import Simulation
from elastune.worker.session import as_trainer
from elastune.worker.setup import WorkerSetup, add_paths
from elastune.worker.ultron import prepared

if TYPE_CHECKING:
    from elastune.provider import Provider

log = logging.getLogger("elastune")

EXPERIMENT = "experiment"
"""The name of the blob beside the journal that holds the experiment and the user's code."""
OWNER = "owner"
"""That of the one with the name under which the run owns its folder in the checkpoint store."""


class Driver:
    """Runs an experiment on Ray or on a simulated cluster, and keeps in the run's folder what a resume needs."""

    def __init__(self, experiment: Experiment, trainable: object, storage: Path, journal: str | None) -> None:
        self.experiment, self.trainable = experiment, prepared(trainable)
        self._storage, self._journal_url = storage, journal
        self._path: Path | None = None
        self._simulation: Simulation | None = None
        self._restored = self._begun = False
        self.machines_from: Callable[[], Provider] | None = None
        """Where the machines come from, if not from where the experiment says: a service has its own."""
        self.known_scores = True
        """Whether scores that are known are taken instead of computed."""

    def run_in(self, folder: Path) -> None:
        """The folder of the next run; else it gets a new one."""
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder

    def _goes_on(self, path: Path, simulation: Simulation | None) -> None:
        """It is that of a run that has begun."""
        self._path, self._simulation, self._restored = path, simulation, True

    def fit(self, progress: bool = True) -> Result:
        """Run on Ray until every trial is done or a limit is reached. Ctrl-C pauses the trials and keeps their
        checkpoints.
        """
        if self._simulation is not None:
            return self.simulate(self._simulation, progress)
        self._check_trainable()
        return self._run(progress, None)

    def simulate(self, simulation: Simulation, progress: bool = False) -> Result:
        """Run the same on a simulated cluster with a virtual clock: what would happen, and what it would cost."""
        if not isinstance(simulation, Simulation):
            raise SpecError(f"simulation={simulation!r}: must be a Simulation, such as Simulation(boot_s=60)")
        simulation.check(self.experiment)
        return self._run(progress, simulation)

    def play(self, simulation: Simulation) -> RunView:
        """The same, and nothing is written."""
        simulation.check(self.experiment)
        return self._drive(MemoryJournal(), False, simulation)

    @property
    def path(self) -> Path:
        """The folder of the run. What cannot be planned gets none."""
        if self._path is None:
            if isinstance(self.experiment.allocator, Planned):
                self._prepare(self.experiment.allocator)
            self._path = new_folder(self._storage, self.experiment.settings.name)
        return self._path

    def _run(self, progress: bool, simulation: Simulation | None) -> Result:
        if self._begun and not self._restored:
            self._path = None  # every fit is a run of its own
        self._begun = True
        if isinstance(self.experiment.allocator, Planned) and not self._restored:
            self._prepare(self.experiment.allocator)
        if simulation is None and self.experiment.checkpoints is not None:
            self._check_store(self.experiment.checkpoints)
        if simulation is None and not self._restored and (rehearsal := self._rehearsal()) is not None:
            log.warning(rehearsal)
        # A simulation can be repeated to the byte, so it need not survive a power cut at every turn.
        group = 1 if simulation is None else 1000
        with (
            only_driver(self.path),
            closing(open_journal(self.path, self._journal_url, must_exist=self._restored, group=group)) as journal,
        ):
            view = self._drive(journal, progress, simulation)
        result = Result(view, self.path)
        if view.status == "interrupted" and view.reason != BY_USER:
            raise StorageError(
                f"run {result.path}: {view.reason}; when it can, go on with: elastune resume {result.path}"
            )
        if view.status == "failed":
            raise RunFailed(f"run {result.path}: {view.reason}{_where(view, result.path)}")
        if not view.bests and view.status != "interrupted":
            raise RunFailed(f"run {result.path}: {view.reason} before any trial has reported{_why(view, result.path)}")
        if view.status != "interrupted" and all(best.to_train for best in view.bests.values()):
            raise RunFailed(f"run {result.path}: {view.reason} before the best was trained: {best_text(view)}")
        return result

    def _prepare(self, planned: Planned) -> None:
        """What cannot be planned is refused before anything is written."""
        if planned.cloud.billing != "instance":
            raise SpecError(f"billing={planned.cloud.billing!r} is for plans only: a run pays for machines")
        planned.prepare()

    def _rehearsal(self) -> str | None:
        """What must be known where the machines that were planned with are not those that train."""
        cloud, market = self.experiment.cloud, self.experiment.market
        if market is not None:
            kinds = ", ".join(market.kinds)
            return (
                f"market of {kinds}: no machines are rented: each is rehearsed on this computer, is taken away as the "
                "prices say, and the bill is what it would cost there"
            )
        if cloud is None or cloud.instance in ("here", "local"):
            return None
        return (
            f"cloud {cloud.instance!r}: no machines are rented: each is rehearsed on this computer with "
            f"{cloud.devices} worker process{'es' * (cloud.devices != 1)}, and the bill is what it would cost there"
        )

    def _check_store(self, url: str) -> None:
        """One that cannot be written, or has another run of that name, is refused, and leaves no empty folder of a run
        behind.
        """
        try:
            CheckpointStore(url).check()
            if not self._restored and (store := checkpoint_store(self.path, url)).owner() is not None:
                raise store.taken()
        except StorageError:
            if self._path is not None:
                with suppress(OSError):  # there is something in it: it is that of a run which goes on
                    self._path.rmdir()
            raise

    def _drive(self, journal: Journal, progress: bool, simulation: Simulation | None) -> RunView:
        """Begin a run, or go on with one, until it is over."""
        view = RunView()
        if not self._restored:
            if next(journal.read(), None) is not None:
                raise StorageError(f"there is a run {self.path.name!r} in that journal already: give another name")
            journal.put_blob(EXPERIMENT, self._blob(simulation))
        # A simulation is fast enough to be replayed from its beginning.
        key = None if simulation is not None else _snapshot_key(journal.get_blob(EXPERIMENT) or b"")
        controller, seq = recover(journal, self.experiment.controller(), key, view.feed)
        _pass_on(journal.warnings)
        if seq and controller.done and view.status != "interrupted":
            release_leftovers(self.path)
            return view
        if simulation is None:
            self._claim_store(journal)
        with closing(self._cluster(view, seq, simulation)) as cluster, Progress() if progress else _silent() as line:

            def observe(record: Record) -> None:
                view.feed(record)
                line.update(view)

            loop = Loop(controller, cluster, journal, seq, key, [observe])
            with interruptible(loop.interrupt):
                if seq:
                    loop.resume(view.at_s)
                    self._tidy(controller, journal, simulation)
                else:
                    loop.start(self._started(cluster.started_unix_s, None if simulation else self._rehearsal()))
                loop.run()
        return view

    def _cluster(self, view: RunView, seq: int, simulation: Simulation | None) -> Cluster:
        """A new cluster. A run that goes on keeps its clock: the deadline is a point in time."""
        if simulation is not None:
            return simulation.cluster(self.experiment, view.at_s)
        from elastune.cluster.ray import RayCluster  # takes seconds to import, and a simulation does without

        experiment, path = self.experiment, self.path.resolve()
        slots, workers = experiment.machines * experiment.devices, experiment.workers
        setup = WorkerSetup(
            trainable=self._code(),
            paths=_paths(),
            checkpoints=checkpoint_store(path, experiment.checkpoints),
            logs=path / "logs",
            checkpoint_every_s=experiment.checkpoint_every_s,
            seed=experiment.seed,
            seeds={each.settings.name: each.seed for each in experiment.each()},
            threads=1 if experiment.reproducible else max(1, (os.cpu_count() or 1) // slots),
            fresh_process=workers.fresh_process or experiment.reproducible,
            reproducible=experiment.reproducible,
            leak_bytes=workers.leak_bytes,
            known_scores=self.known_scores,
        )
        return RayCluster(
            setup,
            self._provider(),
            head_cpus=slots if experiment.provider == "here" and self.machines_from is None else 0,
            minimum_s=self._minimum_s,
            data_usd=experiment.cloud.data_usd if experiment.cloud else 0.0,
            lanes=round(1 / experiment.devices_per_trial) if experiment.devices_per_trial < 1 else 1,
            silence_s=workers.report_within_s,
            started_unix_s=view.started.started_unix_s if seq else None,
            at_s=view.at_s,
        )

    def _provider(self) -> Provider:
        from elastune.provider import Here, Local

        if self.machines_from is not None:
            return self.machines_from()
        experiment = self.experiment
        price = experiment.settings.price_usd_per_device_hour
        if experiment.provider == "here":
            return Here(experiment.devices, price)
        folder, market = self.path.resolve() / MACHINES, experiment.market
        if market is None:
            return Local(folder, experiment.devices, price, experiment.boot_s)
        from elastune.provider.played import Played

        return Played(Local(folder, experiment.devices, price, market.boot_s / market.pace), market, folder)

    @property
    def _minimum_s(self) -> float:
        """For how long a machine is paid for at least."""
        if (market := self.experiment.market) is not None:
            return market.minimum_s / market.pace
        return self.experiment.cloud.minimum_s if self.experiment.cloud else 0.0

    def _claim_store(self, journal: Journal) -> CheckpointStore:
        """The run's checkpoints, which are no other's. A run from before there were owners becomes one."""
        store = checkpoint_store(self.path, self.experiment.checkpoints)
        if self.experiment.checkpoints is not None:
            if (owner := journal.get_blob(OWNER)) is None:
                owner = secrets.token_hex(8).encode()
                journal.put_blob(OWNER, owner)
            store.claim(owner.decode())
        return store

    def _tidy(self, controller: Controller, journal: Journal, simulation: Simulation | None) -> None:
        """Remove what the driver before had no time to write down. Not earlier: now the journal has accepted us."""
        if simulation is None:  # which saves nothing
            self._remove_unknown(controller, self._claim_store(journal))
        journal.put_blob(EXPERIMENT, self._blob(simulation))  # the training function may be a mended one

    def _remove_unknown(self, controller: Controller, store: CheckpointStore) -> None:
        known = {checkpoint.path for trial in controller.trials.values() for checkpoint in trial.checkpoints}
        for checkpoint in store.list():
            if checkpoint.path not in known:
                store.drop(checkpoint)
        store.sweep()

    def _blob(self, simulation: Simulation | None) -> bytes:
        """All that a resume needs, and first of all where the user's modules are."""
        return pickle.dumps((_paths(), cloudpickle.dumps((self.experiment, self.trainable, simulation))))

    def _check_trainable(self) -> None:
        """A run on machines needs one."""
        if self.trainable is None:
            raise SpecError(
                "trainable=None: a run on machines needs a training function; only a simulation does without"
            )

    def _code(self) -> bytes:
        return code_of(self.trainable)

    def _started(self, started_unix_s: float, rehearsal: str | None) -> RunStarted:
        from elastune.forecasts import recorded_plan

        settings = self.experiment.settings
        return RunStarted(
            name=settings.name,
            metric=settings.metric,
            mode=settings.mode,
            seed=self.experiment.seed,
            deadline_s=settings.limits.deadline_s,
            budget_usd=settings.limits.budget_usd,
            price_usd_per_device_hour=settings.price_usd_per_device_hour,
            started_unix_s=started_unix_s,
            checkpoints=self.experiment.checkpoints,
            experiment=self.experiment.describe() | ({} if rehearsal is None else {"rehearsal": rehearsal}),
            versions=_versions(),
            budget_device_s=settings.limits.budget_device_s,
            plan=recorded_plan(self.experiment),
            experiments=self.experiment.recorded(),
        )


def has_begun(path: Path, journal: str | None) -> bool:
    """Whether there is a run in that folder, or in a journal elsewhere, that can be gone on with."""
    if journal is None and not (path / "journal.db").exists():
        return False
    with closing(SqlJournal(journal or path / "journal.db", path.resolve().name)) as opened:
        return opened.get_blob(EXPERIMENT) is not None


def kept(path: Path, journal: str | None) -> tuple[Experiment, object, Simulation | None]:
    """What a run was begun with: the experiment, the user's code, and the world if that is simulated."""
    with closing(open_journal(path, journal, must_exist=True)) as opened:
        blob = opened.get_blob(EXPERIMENT)
    if blob is None:
        raise StorageError(
            f"{path}: the journal holds no experiment; it was written by a simulation or by something else"
        )
    paths, pickled = pickle.loads(blob)
    add_paths(paths)
    try:
        experiment, trainable, simulation = cloudpickle.loads(pickled)
    except Exception as error:
        raise StorageError(
            f"{path}: the experiment cannot be loaded: {type(error).__name__}: {error}. Resume from the "
            "folder and in the environment it was started in"
        ) from error
    return experiment, trainable, simulation


def load(path: str | Path, journal: str | None = None) -> Result:
    """The result of a run as its journal has it now, also while it goes on."""
    return next(watch(Path(path), journal))


def watch(path: Path, journal: str | None = None) -> Iterator[Result]:
    """The same again and again: each time only what is new in the journal is read."""
    view, records, told = RunView(), 0, list[str]()
    while True:
        with closing(open_journal(path, journal, must_exist=True)) as opened:
            for body in opened.read(records):
                view.feed(decode_record(body))
                records += 1
            _pass_on([text for text in opened.warnings if text not in told])
            told += opened.warnings
        view.started  # noqa: B018  says so where the journal is empty
        yield Result(view, path)


def check_trainable(trainable: object) -> None:
    """What can be no training function, or cannot be sent, is refused where it is given. A simulation needs none."""
    if trainable is not None:
        as_trainer(trainable)
        code_of(trainable)


def code_of(trainable: object) -> bytes:
    """A trainable as it travels to the workers."""
    try:
        code: bytes = cloudpickle.dumps(trainable)
    except Exception as error:
        raise SpecError(
            f"trainable={getattr(trainable, '__name__', trainable)!r} cannot be sent to a worker: "
            f"{error}. Open files, locks and connections inside the function, not outside of it"
        ) from error
    return code


def _paths() -> tuple[str, ...]:
    return tuple(str(Path(path).absolute()) for path in sys.path)


def _pass_on(warnings: list[str]) -> None:
    for text in warnings:
        log.warning(text)


def _versions() -> dict[str, str]:
    """Of everything that a snapshot may be made of."""
    found = {"python": platform.python_version()}
    for name in ("elastune", "ray", "optuna", "numpy", "msgspec", "cloudpickle", "torch", "scipy", "cmaes"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _snapshot_key(experiment: bytes) -> str:
    """A snapshot is a pickle: only the same versions and the same code may read it."""
    digest = hashlib.sha256(repr(sorted(_versions().items())).encode() + experiment)
    for source in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _why(view: RunView, path: Path) -> str:
    """What went wrong last in a run that has seen no report, and where there is more."""
    if not view.last_failure:
        return ""
    trial, _ = view.last_failure.split(":", 1)
    return f"; the last that failed is {view.last_failure}; see: elastune status {path}, elastune logs {path} {trial}"


def _where(view: RunView, path: Path) -> str:
    """Where more is to be found about a run that failed: the log of the trial that is named, and the best trial."""
    named = next((trial for trial in view.trials.values() if trial.failures and f"{trial.id}: " in view.reason), None)
    where = f" (the traceback is in {path / 'logs' / named.id}.log)" if named is not None else ""
    if view.best is not None:
        best = (
            f"{view.started.metric}={view.best.best_value:g} by {view.best.id} at iteration {view.best.best_iteration}"
        )
        where += f". The best before: {best}; elastune status {path} shows all"
    return where


class _Silent:
    def update(self, view: RunView) -> None: ...


@contextmanager
def _silent() -> Iterator[_Silent]:
    yield _Silent()
