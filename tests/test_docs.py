"""The documentation is true: its Python runs, its YAML loads, its links and its commands exist.

A block that begins with ```python or ```yaml is complete; `yaml bench` is a comparison. One that needs Ray is marked
`python on-ray`, one that only shows a part `python part`. The blocks of a page share a folder, from top to bottom.
"""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import elastune as et
from elastune.cli import main
from elastune.config_file import load_contest, load_experiment
from elastune.market.synthetic_prices import BEGIN_UNIX_S

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")])
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def blocks(page: Path, kind: str) -> list[str]:
    """The fenced blocks of a page whose opening fence says exactly this."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


ON_RAY = [(page, block) for page in PAGES for block in blocks(page, "python on-ray")]
README_EXAMPLE = (ROOT / "README.md", blocks(ROOT / "README.md", "python")[0])


@each_page
def test_every_complete_python_block_runs_and_every_experiment_loads(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, block in enumerate(blocks(page, "python")):
        name = f"docs_{page.stem}_{number}"  # not __main__: what is meant for Ray stands behind that guard
        exec(compile(block, f"{page.name} block {number}", "exec"), {"__name__": name})
    for block in blocks(page, "yaml profile"):
        (tmp_path / "exp.profile.yaml").write_text(block)
    for number, block in enumerate(blocks(page, "yaml")):
        path = tmp_path / f"{number}.yaml"
        path.write_text(block)
        load_experiment(path, with_trainable=False)
    for number, block in enumerate(blocks(page, "yaml bench")):
        path = tmp_path / f"bench-{number}.yaml"
        path.write_text(block)
        contest, seed = load_contest(path)
        contest.check(seed)


@pytest.mark.slow
@pytest.mark.parametrize(("page", "block"), [README_EXAMPLE, *ON_RAY], ids=lambda each: getattr(each, "stem", "block"))
def test_what_is_meant_for_ray_runs_as_a_script(page: Path, block: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(block)
    subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}, check=True
    )
    (run,) = (tmp_path / "runs").iterdir()
    assert et.load(run).status == "succeeded"


def test_every_block_has_a_kind_that_is_known() -> None:
    kinds = {kind for page in PAGES for kind in re.findall(r"^```(.+)$", page.read_text(), re.MULTILINE)}
    assert kinds <= {"python", "python on-ray", "python part", "yaml", "yaml bench", "yaml profile", "text"}


@each_page
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if "://" in target:
            continue
        place, _, anchor = target.partition("#")
        file = page.parent / place if place else page
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}, (
                target
            )


@each_page
def test_every_command_and_option_exists(page: Path) -> None:
    for name, rest in re.findall(
        r"(?:^ {4}|`)(?:PYTHONPATH=\S+ )?elastune ([a-z]+)([^`#\n]*)", page.read_text(), re.MULTILINE
    ):
        assert name in main.commands
        command = main.commands[name]
        if isinstance(command, click.Group) and rest.split():
            assert rest.split()[0] in command.commands, f"elastune {name}{rest}"
            command = command.commands[rest.split()[0]]
        known = {option for parameter in command.params for option in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", rest)) <= known, f"elastune {name}{rest}"


def test_the_plan_in_the_readme_is_what_is_printed_and_what_is_paid(tmp_path: Path) -> None:
    example = str(ROOT / "examples" / "resnet101" / "resnet101.yaml")
    printed = CliRunner().invoke(main, ["plan", example], catch_exceptions=False).stdout
    (shown,) = blocks(ROOT / "README.md", "text")
    assert "\n".join(map(str.rstrip, printed.splitlines())).startswith(shown)
    assert (
        CliRunner().invoke(main, ["simulate", example, "--storage", str(tmp_path)], catch_exceptions=False).exit_code
        == 0
    )
    result = et.load(tmp_path / "resnet101")
    assert (round(result.view.at_s), round(result.cost or 0.0, 2)) == (19 * 60 + 18, 12.99)


def test_the_plan_by_the_clock_is_what_is_printed_and_costs_what_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = ROOT / "docs" / "best-model.md"
    monkeypatch.chdir(tmp_path)
    Path("hour.yaml").write_text(blocks(page, "yaml")[0])
    printed = CliRunner().invoke(main, ["plan", "hour.yaml"], catch_exceptions=False).stdout
    assert ["\n".join(map(str.rstrip, printed.splitlines())) + "\n"] == blocks(page, "text")
    assert CliRunner().invoke(main, ["simulate", "hour.yaml"], catch_exceptions=False).exit_code == 0
    assert f"${et.load(tmp_path / 'runs' / 'hour').cost:.2f} in a simulation of this plan" in page.read_text()
    report = CliRunner().invoke(main, ["report", "runs/hour"], catch_exceptions=False, env={"COLUMNS": "100"}).stdout
    shown = "\n".join(f"    {line}".rstrip() for line in report.splitlines())
    tables = shown[shown.index("          forecast (at most)") : shown.index("\n\n    machine  training")]
    assert tables in (ROOT / "docs" / "reports.md").read_text()


def test_what_is_trained_on_until_a_date_has_prices_before_and_after_it() -> None:
    text = (ROOT / "docs" / "revocation.md").read_text()
    (days,) = re.findall(r"elastune prices --synthetic --days (\d+)", text)
    begin = datetime.fromtimestamp(BEGIN_UNIX_S, UTC)
    dates = [datetime.fromisoformat(date).replace(tzinfo=UTC) for date in re.findall(r"--until ([\d-]+)", text)]
    assert dates and all(begin + timedelta(1) < date < begin + timedelta(int(days) - 1) for date in dates)


def test_every_field_of_an_experiment_is_in_the_reference() -> None:
    text = (ROOT / "docs" / "experiment-file.md").read_text()
    fields = [name for name in inspect.signature(et.Tuner).parameters if name != "trainable"]
    for name in [*fields, *inspect.signature(et.Simulation).parameters]:
        assert f"| `{name}` |" in text or f"| `{name}=" in text, name
