"""Dependencies are installed once for all jobs that need the same; a build that fails or dies leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastune.errors import SpecError
from elastune.service import environment
from elastune.service.environment import (
    BuildFailed,
    Environment,
    environment_for,
    environment_hash,
    import_paths,
    runtime_env,
)

SOURCE = Path(__file__).parents[2] / "src"
BACKEND = """
import os, sys, time, zipfile
from pathlib import Path

NAME, BODY = {name!r}, {body!r}
INFO = f"{{NAME}}-1.0.dist-info"
METADATA = f"Metadata-Version: 2.1\\nName: {{NAME}}\\nVersion: 1.0\\n"
WHEEL = "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"


def prepare_metadata_for_build_wheel(folder, settings=None):
    (Path(folder) / INFO).mkdir()
    (Path(folder) / INFO / "METADATA").write_text(METADATA)
    return INFO


def build_wheel(folder, settings=None, metadata=None):
{before}
    name = f"{{NAME}}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(Path(folder) / name, "w") as wheel:
        wheel.writestr(f"{{NAME}}.py", BODY)
        wheel.writestr(f"{{INFO}}/METADATA", METADATA)
        wheel.writestr(f"{{INFO}}/WHEEL", WHEEL)
        wheel.writestr(f"{{INFO}}/RECORD", "")
    return name
"""


def wheel(folder: Path, name: str, body: str, version: str = "1.0") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}.py", body)
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    return path


def folder_package(folder: Path, name: str, body: str, before: str = "pass") -> Path:
    """A folder that pip can install without any build tool; `before` runs when it is built."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(
        f'[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        f'[project]\nname = "{name}"\nversion = "1.0"\n'
    )
    indented = "".join(f"    {line}\n" for line in before.splitlines())
    (folder / "backend.py").write_text(BACKEND.format(name=name, body=body, before=indented))
    return folder


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)


def write(folder: Path, **files: str) -> Path:
    """Each as name_suffix: train_py is train.py."""
    for name, text in files.items():
        stem, _, suffix = name.rpartition("_")
        path = folder / f"{stem}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def says(python: Path, code: str) -> str:
    ran = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    return ran.stdout.strip()


def log_of(built: Environment) -> str:
    assert built.log is not None
    return built.log.read_text()


def builds(root: Path) -> list[str]:
    return sorted(path.name for path in root.glob("*/build-*"))


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"requirements_txt": "# nothing\n\n"},
        {"requirements_txt": "-r more.txt\n", "more_txt": "  # nothing either\n"},
        {"pyproject_toml": "[tool.ruff]\nline-length = 100\n"},
        {"pyproject_toml": '[project]\nname = "job"\nversion = "1"\n'},
        {"pyproject_toml": '[project]\nname = "job"\nversion = "1"\n', "setup_py": "raise SystemExit('not asked')"},
    ],
)
def test_code_without_dependencies_uses_the_interpreter_of_the_service(files: dict[str, str], tmp_path: Path) -> None:
    code = write(tmp_path / "code", train_py="", **files)
    assert environment_for(code, tmp_path / "root") == Environment("", Path(sys.executable), None)
    assert environment_hash(code) == ""
    assert not (tmp_path / "root").exists()


def test_requirements_are_installed_beside_what_the_service_has(tmp_path: Path) -> None:
    one, other = wheel(tmp_path, "tiny_one", "value = 41"), wheel(tmp_path, "iniconfig", "value = 42", "99.0")
    code = write(
        tmp_path / "code", requirements_txt=f"{one}  # by path\niniconfig @ {other.as_uri()}\nnumpy\nelastune\n"
    )
    built = environment_for(code, tmp_path / "root")
    assert built.python != Path(sys.executable) and built.hash == environment_hash(code)
    assert says(built.python, "import tiny_one, iniconfig; print(tiny_one.value, iniconfig.value)") == "41 42"
    # What was there is still what it was, for the service and for the job.
    where = "import numpy, ray; print(numpy.__file__, ray.__file__)"
    assert says(built.python, where) == says(Path(sys.executable), where)
    assert says(Path(sys.executable), "import iniconfig; print(hasattr(iniconfig, 'value'))") == "False"
    assert "Successfully installed" in log_of(built)
    assert not list((tmp_path / "root").glob("*/*/scratch"))


def test_dependencies_of_pyproject_are_installed_without_the_package_itself(tmp_path: Path) -> None:
    tiny = wheel(tmp_path, "tiny_two", "value = 2")
    project = f'[project]\nname = "job"\nversion = "1"\ndependencies = ["tiny_two @ {tiny.as_uri()}"]\n'
    code = write(tmp_path / "code", pyproject_toml=project, job_py="value = 1")
    python = environment_for(code, tmp_path / "root").python
    assert says(python, "import tiny_two; print(tiny_two.value)") == "2"
    listed = json.loads(
        says(
            python,
            "import subprocess, sys; subprocess.run([sys.executable, '-m', 'pip', 'list', '--format=json', '--local'])",
        )
    )
    assert [each["name"] for each in listed] == ["tiny_two"]


def test_setup_py_is_asked_in_another_process_on_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_SERVICE", "hunter2")
    tiny = wheel(tmp_path, "tiny_three", "value = 3")
    setup = (
        "import os, pathlib\nfrom setuptools import setup\n"
        f"pathlib.Path({str(tmp_path / 'asked')!r}).open('a').write(f'{{os.getpid()}} {{sorted(os.environ)}}\\n')\n"
        "pathlib.Path('spoilt').write_text('x')\n"
        "setup(name='job', version='1', install_requires=pathlib.Path('needs.txt').read_text().split('\\n'),\n"
        "      extras_require={'dev': ['never-installed']})\n"
    )
    code = write(tmp_path / "code", setup_py=setup, needs_txt=f"tiny_three @ {tiny.as_uri()}", train_py="1")
    python = environment_for(code, tmp_path / "root").python
    assert says(python, "import tiny_three; print(tiny_three.value)") == "3"
    asked = (tmp_path / "asked").read_text()
    assert f"{os.getpid()} " not in asked and "'PATH'" in asked and "SECRET" not in asked
    assert sorted(path.name for path in code.iterdir()) == ["needs.txt", "setup.py", "train.py"]
    # Another edit of the code does not ask again; what the setup reads does.
    before = environment_hash(code)
    write(code, train_py="2")
    assert environment_for(code, tmp_path / "root").python == python
    assert (tmp_path / "asked").read_text() == asked
    write(code, needs_txt="")
    assert environment_hash(code) != before
    assert environment_for(code, tmp_path / "root").python == Path(sys.executable)


@pytest.mark.parametrize("name", ["requirements_txt", "pyproject_toml", "setup_py", "more_txt", "limits_txt"])
def test_the_hash_changes_with_every_file_that_decides(name: str, tmp_path: Path) -> None:
    files = {
        "requirements_txt": "-r more.txt\n-c limits.txt\n",
        "more_txt": "one\n",
        "limits_txt": "one<3\n",
        "pyproject_toml": "[build-system]\nrequires = []\n",
        "setup_py": "pass",
    }
    code = write(tmp_path, **files, train_py="")
    before = environment_hash(code)
    assert environment_hash(write(code, train_py="edited")) == before
    assert environment_hash(write(code, **{name: files[name] + "\n[tool.x]\n" + "y = 1\n"})) != before


def test_a_package_inside_the_code_counts_with_its_content(tmp_path: Path) -> None:
    code = write(tmp_path / "code", requirements_txt="-e libs/tiny\n")
    folder_package(code / "libs" / "tiny", "tiny_inside", "value = 5")
    built = environment_for(code, tmp_path / "root")
    assert says(built.python, "import tiny_inside; print(tiny_inside.value)") == "5"
    assert says(built.python, "import tiny_inside; print(tiny_inside.__file__)").startswith(str(tmp_path / "root"))
    folder_package(code / "libs" / "tiny", "tiny_inside", "value = 6")
    assert environment_hash(code) != built.hash


def test_the_code_itself_in_its_requirements_stands_for_its_dependencies(tmp_path: Path) -> None:
    plain = '[project]\nname = "job"\nversion = "1"\n'
    assert environment_hash(write(tmp_path, requirements_txt="-e .\n", pyproject_toml=plain)) == ""
    with pytest.raises(SpecError, match=r"'\.\[dev\]'.*write down the dependencies"):
        environment_hash(write(tmp_path, requirements_txt="-e .[dev]\n"))


@pytest.mark.parametrize(
    "line",
    ["-r ../other.txt", "-r /etc/passwd", "-r gone.txt", "-c ../c.txt", "../lib", "./gone"],
)
def test_requirements_that_lead_out_of_the_code_are_refused(line: str, tmp_path: Path) -> None:
    write(tmp_path, other_txt="", c_txt="")
    (tmp_path / "lib").mkdir()
    with pytest.raises(SpecError, match=r"requirements\.txt of the code: .* must be a"):
        environment_hash(write(tmp_path / "code", requirements_txt=f"{line}\n"))


def test_requirements_that_name_each_other_again_and_again_are_read_once(tmp_path: Path) -> None:
    """Each of them ten times, and the first in a circle: with all its repetitions it would have no end."""
    files = {f"r{n}_txt": f"-r r{n + 1}.txt\n-r x/../r{n + 1}.txt\n" * 10 for n in range(30)}
    code = write(tmp_path, requirements_txt="-r r0.txt\n", r30_txt="-r requirements.txt\n", **files)
    (code / "x").mkdir()
    assert environment_hash(code) == ""


def test_requirements_that_name_more_files_than_can_be_followed_are_refused(tmp_path: Path) -> None:
    files = {f"r{n}_txt": f"-r r{n + 1}.txt\n" for n in range(1200)}
    with pytest.raises(SpecError, match=r"requirements\.txt of the code: cannot be read: maximum recursion"):
        environment_hash(write(tmp_path, requirements_txt="-r r0.txt\n", r1200_txt="", **files))


LINES = st.lists(
    st.sampled_from(["-r ", "-c ", "-e ", "./", "..", "/", "[x]", "; ", "#", "\0", "\\\n", "a" * 300, "=", "ö"])
)


@given(st.one_of(LINES.map("".join), st.text()), st.one_of(st.text(), st.sampled_from(["[" * 9999, "project = 1"])))
def test_whatever_the_files_hold_the_service_gives_a_hash_or_a_clear_error(requirements: str, pyproject: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "requirements.txt").write_text(requirements, "utf-8", "replace")
        assert said(Path(place)) in ("a hash", "requirements.txt of the code")
        (Path(place) / "requirements.txt").unlink()
        (Path(place) / "pyproject.toml").write_text(pyproject, "utf-8", "replace")
        assert said(Path(place)) in ("a hash", "pyproject.toml of the code")


def said(code: Path) -> str:
    try:
        return "a hash" if len(environment_hash(code)) in (0, 64) else "something else"
    except SpecError as error:
        return str(error).partition(":")[0]


def test_a_huge_file_of_requirements_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="larger than"):
        environment_hash(write(tmp_path, requirements_txt="a\n" * 1_000_000))


def test_wheels_in_the_code_are_found_and_count_with_their_content(tmp_path: Path) -> None:
    code = write(tmp_path / "code", requirements_txt="--find-links ./wheels\ntiny_shelf\n")
    wheel(code / "wheels", "tiny_shelf", "value = 1")
    built = environment_for(code, tmp_path / "root")
    assert says(built.python, "import tiny_shelf; print(tiny_shelf.value)") == "1"
    wheel(code / "wheels", "tiny_shelf", "value = 2")
    assert environment_hash(code) != built.hash


@pytest.mark.parametrize(
    "text", ["[project", '[project]\nname = "a"\ndependencies = "numpy"\n', "[project]\ndependencies = [1]\n"]
)
def test_a_pyproject_that_cannot_be_read_is_a_clear_error(text: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"pyproject\.toml of the code: "):
        environment_hash(write(tmp_path, pyproject_toml=text))


def test_a_build_that_fails_shows_its_log_and_may_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "shelf"))
    (tmp_path / "shelf").mkdir()
    code = write(tmp_path / "code", requirements_txt="tiny-four\n")
    with pytest.raises(BuildFailed, match="No matching distribution found for tiny-four") as failed:
        environment_for(code, tmp_path / "root")
    log = tmp_path / "root" / environment_hash(code) / "build.log"
    assert failed.value.log == log and failed.value.tail in log.read_text()
    assert builds(tmp_path / "root") == [] and not list((tmp_path / "root").glob("*/ready"))
    wheel(tmp_path / "shelf", "tiny_four", "value = 4")
    again = environment_for(code, tmp_path / "root")
    assert says(again.python, "import tiny_four; print(tiny_four.value)") == "4"
    assert again.log == log and "No matching" not in log.read_text()


def test_a_setup_that_fails_shows_what_it_said(tmp_path: Path) -> None:
    code = write(tmp_path / "code", setup_py="raise SystemExit('there is no licence')")
    with pytest.raises(BuildFailed, match="there is no licence"):
        environment_for(code, tmp_path / "root")
    assert builds(tmp_path / "root") == []


def test_ray_and_elastune_cannot_be_replaced(tmp_path: Path) -> None:
    other = wheel(tmp_path, "ray", "", "1.0")
    code = write(tmp_path / "code", requirements_txt=f"{other}\n")
    with pytest.raises(BuildFailed, match=r"constraint\) ray==2"):
        environment_for(code, tmp_path / "root")


@pytest.mark.slow
def test_a_build_that_takes_too_long_is_ended_with_all_it_started(tmp_path: Path) -> None:
    waits = (
        f"import subprocess\nchild = subprocess.Popen(['sleep', '600'])\n"
        f"Path({str(tmp_path / 'pids')!r}).write_text(f'{{os.getpid()}} {{child.pid}}')\ntime.sleep(600)"
    )
    package = folder_package(tmp_path / "package", "tiny_slow", "", waits)
    code = write(tmp_path / "code", requirements_txt=f"tiny_slow @ {package.as_uri()}\n")
    with pytest.raises(BuildFailed, match="took too long"):
        environment_for(code, tmp_path / "root", timeout_s=30)
    assert_gone(tmp_path / "pids")
    assert builds(tmp_path / "root") == []


def test_a_build_that_never_stops_talking_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "LOG_LIMIT_BYTES", 100_000)
    code = write(tmp_path / "code", setup_py="import os\nwhile True: os.write(2, b'again\\n' * 1000)")
    monkeypatch.setenv("PIP_VERBOSE", "1")
    with pytest.raises(BuildFailed, match="said more than"):
        environment_for(code, tmp_path / "root", timeout_s=60)


def assert_gone(pids: Path) -> None:
    """Within a moment: what is killed may still be taken in by the first process."""
    for pid in pids.read_text().split():
        wait_until(lambda pid=pid: not alive(int(pid)))  # type: ignore[misc]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(true: Callable[[], bool], limit_s: float = 60) -> None:
    until = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.02)


BUILD = (
    "import sys\nfrom pathlib import Path\nfrom elastune.service.environment import environment_for\n"
    "print(environment_for(Path(sys.argv[1]), Path(sys.argv[2])).python)\n"
)


def start_build(code: Path, root: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", BUILD, str(code), str(root)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
    )


def test_two_processes_that_need_the_same_build_it_once(tmp_path: Path) -> None:
    """The second one begins while the first is in the middle: that one goes on when it sees the other."""
    counts = (
        f"with Path({str(tmp_path / 'built')!r}).open('a') as file: file.write('x')\n"
        f"while not Path({str(tmp_path / 'go')!r}).exists(): time.sleep(0.02)"
    )
    package = folder_package(tmp_path / "package", "tiny_once", "value = 1", counts)
    code = write(tmp_path / "code", requirements_txt=f"tiny_once @ {package.as_uri()}\n")
    other = write(tmp_path / "other", requirements_txt=(code / "requirements.txt").read_text(), train_py="")
    first = start_build(code, tmp_path / "root")
    wait_until((tmp_path / "built").exists)
    second = start_build(other, tmp_path / "root")
    lock = tmp_path / "root" / environment_hash(code) / "lock"
    wait_until(lambda: str(lock) in open_files(second.pid))
    (tmp_path / "go").touch()
    pythons = {first.communicate(timeout=120)[0], second.communicate(timeout=120)[0]}
    assert first.returncode == second.returncode == 0 and len(pythons) == 1
    assert (tmp_path / "built").read_text() == "x"
    assert says(Path(pythons.pop().strip()), "import tiny_once; print(tiny_once.value)") == "1"


def open_files(pid: int) -> list[str]:
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.append(os.readlink(link))
        except FileNotFoundError:
            continue
    return found


@pytest.mark.slow
def test_a_build_whose_service_is_killed_ends_with_it_and_is_built_anew(tmp_path: Path) -> None:
    waits = (
        f"if Path({str(tmp_path / 'hang')!r}).exists():\n"
        f"    Path({str(tmp_path / 'pids')!r}).write_text(f'{{os.getpid()}} {{os.getppid()}}')\n"
        "    time.sleep(600)"
    )
    (tmp_path / "hang").touch()
    package = folder_package(tmp_path / "package", "tiny_killed", "value = 7", waits)
    code = write(tmp_path / "code", requirements_txt=f"tiny_killed @ {package.as_uri()}\n")
    for _ in range(2):
        service = start_build(code, tmp_path / "root")
        wait_until(lambda: (tmp_path / "pids").exists() and (tmp_path / "pids").read_text().count(" ") == 1)
        assert "tiny_killed" in (tmp_path / "root" / environment_hash(code) / "build.log").read_text()  # as it runs
        service.send_signal(signal.SIGKILL)
        service.communicate()
        assert_gone(tmp_path / "pids")
        (tmp_path / "pids").unlink()
        assert len(builds(tmp_path / "root")) == 1 and not list((tmp_path / "root").glob("*/ready"))
    (tmp_path / "hang").unlink()
    built = environment_for(code, tmp_path / "root")
    assert says(built.python, "import tiny_killed; print(tiny_killed.value)") == "7"
    assert builds(tmp_path / "root") == [built.python.parents[2].name]


@pytest.mark.slow
def test_an_environment_that_was_removed_is_built_again(tmp_path: Path) -> None:
    code = write(tmp_path / "code", requirements_txt=f"{wheel(tmp_path, 'tiny_gone', 'value = 8')}\n")
    first = environment_for(code, tmp_path / "root")
    first.python.unlink()
    again = environment_for(code, tmp_path / "root")
    assert again.hash == first.hash
    assert says(again.python, "import tiny_gone; print(tiny_gone.value)") == "8"


def test_the_folder_of_the_code_and_its_sources_go_on_the_path(tmp_path: Path) -> None:
    assert import_paths(tmp_path) == (tmp_path,)
    (tmp_path / "src").mkdir()
    assert import_paths(tmp_path) == (tmp_path, tmp_path / "src")


def test_the_runtime_environment_lists_code_and_dependencies(tmp_path: Path) -> None:
    code = write(tmp_path / "plain", train_py="")
    assert runtime_env(code).keys() == {"working_dir", "excludes"}
    setup = "from setuptools import setup\nsetup(name='job', version='1', install_requires=['six>=1'])\n"
    code = write(tmp_path / "code", requirements_txt="-c limits.txt\n./lib\nnumpy\n", limits_txt="", setup_py=setup)
    folder_package(code / "lib", "tiny_lib", "")
    write(code / "src" / "job", __init___py="")
    found = runtime_env(code)
    inside = "${RAY_RUNTIME_ENV_CREATE_WORKING_DIR}"
    assert found["pip"] == [f"-c {inside}/limits.txt", f"{inside}/lib", "numpy", "six>=1"]
    assert found["working_dir"] == str(code) and found["py_modules"] == [str(code / "src" / "job")]


TRIAL = """
import sys
import elastune as et

def train(config):
    import tiny_trial
    for step in range(2):
        et.report({"loss": config["x"] + tiny_trial.value, "same": float(sys.executable == config["python"])})

if __name__ == "__main__":
    result = et.Tuner(
        train, space={"x": et.uniform(0, 1), "python": et.choice([sys.executable])}, metric="loss", mode="min",
        algorithm=et.FIFO(n=2, R=2), seed=0, storage=sys.argv[1],
    ).fit()
    reports = [report for trial in result.view.trials.values() for report in trial.reports]
    print(len(reports), min(report.metrics["loss"] for report in reports) >= 1000)
    print({report.metrics["same"] for report in reports})
"""


@pytest.mark.slow
def test_trials_on_ray_see_what_was_installed_for_the_job(tmp_path: Path) -> None:
    package = folder_package(tmp_path / "package", "tiny_trial", "value = 1000")
    needs = f"tiny_trial @ {package.as_uri()}\n"
    code = write(tmp_path / "code", requirements_txt=needs, train_py=TRIAL)
    built = environment_for(code, tmp_path / "root")
    ran = subprocess.run(
        [built.python, code / "train.py", tmp_path / "runs"],
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-2:] == ["4 True", "{1.0}"]
    assert says(Path(sys.executable), "import importlib.util as u; print(u.find_spec('tiny_trial'))") == "None"


CLUSTER = """
import json, sys
import ray

@ray.remote
def inside():
    import helper, tiny_remote
    return [helper.value, tiny_remote.value, sys.executable]

ray.init(address="local", num_cpus=1, include_dashboard=False, runtime_env=json.loads(sys.argv[1]))
print(json.dumps(ray.get(inside.remote())))
"""


@pytest.mark.slow
def test_ray_installs_the_same_from_the_runtime_environment(tmp_path: Path) -> None:
    """The driver runs in a small environment: Ray copies that of the driver first, and the service's may be huge."""
    pytest.importorskip("virtualenv")
    code = write(tmp_path / "code", requirements_txt="./lib\n", helper_py="value = 1")
    folder_package(code / "lib", "tiny_remote", "value = 2")
    small = write(tmp_path / "small", requirements_txt=f"{wheel(tmp_path, 'tiny_small', '')}\n")
    driver = environment_for(small, tmp_path / "root").python
    write(tmp_path / "driver", driver_py=CLUSTER)
    ran = subprocess.run(
        [driver, tmp_path / "driver" / "driver.py", json.dumps(runtime_env(code))],
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=240,
        cwd=tmp_path / "driver",
    )
    assert ran.returncode == 0, ran.stderr
    helper, tiny, python = json.loads(ran.stdout.splitlines()[-1])
    assert (helper, tiny) == (1, 2)
    assert "runtime_resources/pip" in python
