"""Machines that never finish booting: what their keepers do without any Ray."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.provider.world import NOTICED_S, have_ended, keeper_pid, names, running, wait_until

from elastune.errors import SpecError
from elastune.provider import machine as m
from elastune.provider.local import Local, Swept, release_all
from elastune.provider.owner import OwnerLock

ROOT = Path(__file__).parent.parent.parent
BOOTS_FOR_EVER_S = 1e6


@pytest.fixture
def killed_driver(tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Starts a driver without Ray whose machines boot for ever, and kills it once they are there."""

    def kill(*machines: str, linger_s: float = 60.0) -> None:
        arguments = [str(tmp_path), "booting", str(BOOTS_FOR_EVER_S), str(linger_s), *machines]
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.provider.driver", *arguments], cwd=ROOT, stdout=subprocess.PIPE
        )
        assert driver.stdout is not None and driver.stdout.readline() == b"there\n"
        for name in machines:
            keeper_pid(tmp_path, name)
        driver.kill()
        driver.communicate()

    yield kill
    release_all(tmp_path)


def test_a_machine_whose_keeper_is_killed_is_gone(local: Callable[..., Local], tmp_path: Path) -> None:
    provider = local(boot_s=BOOTS_FOR_EVER_S)
    provider.request("n0")
    os.kill(keeper_pid(tmp_path, "n0"), signal.SIGKILL)
    assert wait_until(lambda: names(provider) == [], NOTICED_S)
    assert provider.why_gone("n0") == "its keeper was killed"


def test_release_ends_the_keeper(local: Callable[..., Local], tmp_path: Path) -> None:
    provider = local(boot_s=BOOTS_FOR_EVER_S)
    provider.request("n0")
    assert provider.why_gone("n0") == "it is there"
    pid = keeper_pid(tmp_path, "n0")
    provider.release("n0")
    assert provider.why_gone("n0") == "it was released"
    assert wait_until(lambda: have_ended({pid}), NOTICED_S)


def test_a_keeper_that_hangs_is_killed(
    local: Callable[..., Local], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elastune.provider.local.OVERDUE_S", 0.2)
    provider = local(boot_s=BOOTS_FOR_EVER_S)
    provider.request("n0")
    pid = keeper_pid(tmp_path, "n0")
    os.kill(pid, signal.SIGSTOP)
    provider.release("n0")
    assert wait_until(lambda: names(provider) == [] and have_ended({pid}), NOTICED_S)


def test_a_revocation_is_announced_and_carried_out(local: Callable[..., Local], tmp_path: Path) -> None:
    provider = local(boot_s=BOOTS_FOR_EVER_S)
    provider.request("n0")
    provider.request("n1")
    pids = {keeper_pid(tmp_path, name) for name in ("n0", "n1")}
    gone_at_unix_s = time.time() + 1.5
    provider.revoke("n0", notice_s=1.5)
    provider.revoke("n1", notice_s=0)
    [noticed] = provider.list()
    assert noticed.name == "n0" and noticed.gone_at_unix_s == pytest.approx(gone_at_unix_s, abs=0.5)
    assert wait_until(lambda: names(provider) == [], 1.5 + NOTICED_S)
    assert time.time() >= gone_at_unix_s
    assert wait_until(lambda: have_ended(pids), NOTICED_S)
    assert provider.why_gone("n0") == "it was taken away at the end of its notice"


def test_what_is_not_there_cannot_be_revoked(local: Callable[..., Local]) -> None:
    with pytest.raises(SpecError, match="revoke 'n7': it is not there"):
        local().revoke("n7", 1.0)


def test_a_folder_that_is_removed_takes_its_machines_along(local: Callable[..., Local], tmp_path: Path) -> None:
    provider = local(boot_s=BOOTS_FOR_EVER_S)
    provider.request("n0")
    pid = keeper_pid(tmp_path, "n0")
    shutil.rmtree(tmp_path / "n0")
    assert wait_until(lambda: have_ended({pid}), NOTICED_S)
    assert names(provider) == []


def test_machines_have_one_driver_at_a_time(local: Callable[..., Local]) -> None:
    first = local(boot_s=BOOTS_FOR_EVER_S)
    first.request("n0")
    [machine] = first.list()
    with pytest.raises(SpecError, match="a driver that is running owns them"):
        local()
    first.close()
    assert local().list() == [machine]


def test_a_child_of_the_driver_does_not_own_its_machines(tmp_path: Path) -> None:
    lock = OwnerLock(tmp_path / "owner.lock")
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    child.start()
    try:
        assert m.is_owned(tmp_path)
        lock.close()
        assert wait_until(lambda: not m.is_owned(tmp_path), NOTICED_S)
        OwnerLock(tmp_path / "owner.lock").close()
    finally:
        child.kill()
        child.join()


def test_machines_outlive_their_driver_until_nobody_comes(
    killed_driver: Callable[..., None], local: Callable[..., Local], tmp_path: Path
) -> None:
    killed_driver("n0", linger_s=2.0)
    pids = running(tmp_path, "n0")
    killed_s = time.monotonic()
    assert wait_until(lambda: have_ended(pids), 3.0 + NOTICED_S)
    assert time.monotonic() - killed_s >= 1.0
    provider = local()
    assert provider.list() == []
    assert provider.why_gone("n0") == "no driver came for it within 2 s"


def test_machines_of_a_dead_driver_are_swept_away_and_those_of_a_living_one_are_not(
    killed_driver: Callable[..., None], local: Callable[..., Local], tmp_path: Path
) -> None:
    assert release_all(tmp_path) == Swept()
    killed_driver("n0", "n1")
    pids = running(tmp_path, "n0") | running(tmp_path, "n1")
    assert len(pids) == 2
    provider = local()
    assert release_all(tmp_path) == Swept(owned=("n0", "n1"))
    provider.release("n0")
    provider.close()
    assert release_all(tmp_path) == Swept(released=("n1",))
    assert have_ended(pids)
    assert release_all(tmp_path) == Swept()
    assert local().list() == []
