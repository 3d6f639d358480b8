"""A trial's output in its own file: complete while it is small, bounded when it is not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from elastune.worker import log
from elastune.worker.log import Logs, follow_log, log_path, older

WRITER = """
import os, subprocess, sys
from pathlib import Path
from elastune.worker.log import Logs
logs = Logs(limit_bytes=2000)
with logs.to(Path(sys.argv[1])):
    print("from python")
    sys.stdout.flush()
    os.write(2, b"from C\\n")
    subprocess.run(["echo", "from a child"])
    for number in range(200):
        print(f"line {number:04d}", flush=True)
        logs.trim()
print("not of the trial")
"""


def test_output_of_all_kinds_is_kept_up_to_a_limit_and_the_newest_is_there(tmp_path: Path) -> None:
    path = log_path(tmp_path / "logs", "t-1", 0)
    done = subprocess.run([sys.executable, "-c", WRITER, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout == "not of the trial\n"
    kept = older(path).read_text() + path.read_text()
    assert kept.endswith("line 0199\n") and len(kept) <= 2100
    lines = [line for line in kept.splitlines() if line.startswith("line")]
    assert lines == [f"line {number:04d}" for number in range(200 - len(lines), 200)]


def test_a_small_log_has_everything(tmp_path: Path) -> None:
    path = log_path(tmp_path, "t", 1)
    source = WRITER.replace("range(200)", "range(3)")
    subprocess.run([sys.executable, "-c", source, str(path)], capture_output=True, check=True)
    assert path.name == "t.1.log" and not older(path).exists()
    assert path.read_text() == "from python\nfrom C\nfrom a child\nline 0000\nline 0001\nline 0002\n"


def test_following_shows_every_line_once_also_over_a_change_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "FOLLOW_S", 0.0)
    path = tmp_path / "t.log"
    turns = iter(["nothing yet", "first", "more", "full", "end"])

    def over() -> bool:
        """Each time somebody looks, the trial has gone on."""
        match next(turns):
            case "first":
                path.write_text("a\n")
            case "more":
                with path.open("a") as file:
                    file.write("b\n")
            case "full":
                os.replace(path, older(path))
                path.write_text("c\n")
            case "end":
                return True
        return False

    assert "".join(follow_log(path, over)) == "a\nb\nc\n"


def test_what_is_there_is_shown_older_first(tmp_path: Path) -> None:
    path = tmp_path / "t.log"
    path.write_text("new\n")
    older(path).write_text("old\n")
    assert "".join(follow_log(path, lambda: True)) == "old\nnew\n"


def test_a_log_that_cannot_be_renamed_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "t.log"
    older(path).mkdir(parents=True)
    (older(path) / "in the way").touch()
    source = WRITER.replace("range(200)", "range(300)")
    subprocess.run([sys.executable, "-c", source, str(path)], capture_output=True, check=True)
    assert path.read_text().endswith("line 0299\n")


def test_logs_needs_no_trial_to_be_watched() -> None:
    Logs().trim()
