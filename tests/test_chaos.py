"""A run on real machines that come to harm again and again ends as if nothing had happened."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.chaos import disturb, outcome, tune

pytestmark = pytest.mark.slow


@pytest.mark.timeout(900)
def test_a_run_with_100_faults_ends_as_an_undisturbed_one_and_leaves_nothing_behind(tmp_path: Path) -> None:
    undisturbed = outcome(tune(tmp_path, "calm", None, 0.01))
    assert undisturbed[0] == "succeeded"
    result, faults = disturb(tmp_path, "disturbed", undisturbed, 100, seed=1)
    print(dict(faults.done), f"{result.view.retrained} iterations retrained")
    assert faults.done.total() == 100
    assert sum(faults.done[kind] for kind in ("kill raylet", "notice", "take away", "kill keeper")) >= 15
