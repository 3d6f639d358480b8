"""The service on a Ray cluster that there is already: its devices are those of other computers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from ray.cluster_utils import Cluster
from tests.service.storm import free_port, running

from elastune.cli import main
from elastune.messages import decode_record
from elastune.record.journal import SqlJournal
from elastune.record.projection import RunView
from elastune.service.client import Client

TRAIN = """
import time
import elastune as et
import ray
from helper import loss

def train(config):
    done = et.get_checkpoint() or 0
    while True:
        time.sleep(0.1)
        done += 1
        node = int(ray.get_runtime_context().get_node_id()[:12], 16)
        et.report({"loss": loss(config["x"], done), "node": node}, checkpoint=lambda: done)
"""
STEPS = 60
SPEC: dict[str, Any] = {
    "name": "spread",
    "trainable": "train.py:train",
    "space": {"x": {"uniform": [0, 1]}},
    "metric": "loss",
    "algorithm": {"FIFO": {"n": 4, "R": STEPS}},
    "cluster": {"machines": 4, "devices": 1},
    "checkpoint_every": "500ms",
}
NODE: dict[str, Any] = {"num_cpus": 2, "object_store_memory": 80 << 20}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    checks = {"health_check_initial_delay_ms": 5000, "health_check_period_ms": 1000, "health_check_timeout_ms": 3000}
    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": 100 << 20, "_system_config": checks}
    made = Cluster(initialize_head=True, head_node_args=head)
    yield made
    made.shutdown()  # type: ignore[no-untyped-call]


def view_of(home: Path, job: str) -> RunView:
    journal = SqlJournal(home / "runs" / job / "journal.db", job, must_exist=True)
    view = RunView.of(decode_record(body) for body in journal.read())
    journal.close()
    return view


@pytest.mark.slow
def test_a_job_trains_on_the_computers_of_a_ray_cluster_and_survives_the_loss_of_one(
    tmp_path: Path, cluster: Cluster
) -> None:
    first, second = cluster.add_node(**NODE), cluster.add_node(**NODE)
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(TRAIN)
    (code / "helper.py").write_text("def loss(x, step):\n    return x / step\n")
    with running(tmp_path, 4, more=["--ray", cluster.address]) as service:
        client = Client(service.url, (service.home / "admin-token").read_text().strip())
        job = client.submit(SPEC, code)["id"]
        until = time.monotonic() + 120.0
        while len([r for r in trials_of(client, job) if r["iteration"] >= 5]) < 4 and time.monotonic() < until:
            time.sleep(0.2)
        cluster.remove_node(second, allow_graceful=False)
        found = client.wait(job, timeout_s=180.0)
        assert found["state"] == "succeeded", found["reason"]
        view = view_of(service.home, job)
    nodes = {int(report.metrics["node"]) for trial in view.trials.values() for report in trial.reports}
    assert nodes == {int(node.node_id[:12], 16) for node in (first, second)}
    for trial in view.trials.values():
        assert [report.iteration for report in trial.reports] == list(range(1, STEPS + 1))


def trials_of(client: Client, job: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.request("GET", f"/jobs/{job}/trials")["trials"]
    return found


@pytest.mark.parametrize(
    ("address", "said"), [(f"127.0.0.1:{free_port()}", "does not answer"), ("auto", "must be HOST:PORT")]
)
def test_a_ray_that_does_not_answer_is_an_error_before_anything_is_made(
    tmp_path: Path, address: str, said: str
) -> None:
    home = tmp_path / "home"
    result = CliRunner().invoke(main, ["serve", "--home", str(home), "--port", str(free_port()), "--ray", address])
    assert result.exit_code == 2 and said in result.output and not home.exists()
