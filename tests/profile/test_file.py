from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from elastune.errors import SpecError
from elastune.profile import (
    Cloud,
    JobProfile,
    Latency,
    Scaling,
    cloud_for,
    constant,
    empirical,
    load_profile,
    lognormal,
    normal,
    save_profile,
)

SECONDS = st.floats(1e-6, 1e9)
SHAPES = st.builds(normal, SECONDS, SECONDS | st.just(0.0)) | st.builds(lognormal, SECONDS, SECONDS | st.just(0.0))
STEPS: st.SearchStrategy[Latency] = (
    st.builds(constant, SECONDS) | SHAPES | st.lists(SECONDS, min_size=1).map(lambda values: empirical(tuple(values)))
)
LATENCIES = STEPS | st.just(constant(0.0)) | st.just(empirical((0.0, 1.0)))
SCALINGS = st.dictionaries(st.integers(2, 512), st.floats(0.01, 1000)).map(lambda known: Scaling({1: 1.0, **known}))
PACKED = st.lists(st.floats(0.01, 1.0), max_size=4).map(tuple)
PROFILES = st.builds(JobProfile, STEPS, SCALINGS, LATENCIES, LATENCIES, PACKED)
AMOUNTS = st.floats(0, 1e6)
ODD = st.text(st.sampled_from("a '\"\\\n\r\t\0\x7f\x85\xa0\u2028\u2029\ufeff\ufffe\U0001f600:#-"), min_size=1)
"""Line breaks that YAML takes for others, and what else is no letter."""
NAMES = st.text(min_size=1) | ODD | st.sampled_from(["1e4", "null", "yes", "12", "a: b", "# no", "~", "2024-01-01"])
CLOUDS = st.builds(
    Cloud,
    NAMES,
    st.integers(1, 1000),
    AMOUNTS,
    LATENCIES,
    LATENCIES,
    st.sampled_from(["instance", "function"]),
    AMOUNTS,
    AMOUNTS,
    AMOUNTS,
) | st.builds(Cloud, NAMES, st.integers(1, 1000), AMOUNTS)

GOOD = JobProfile(normal(109.0, 3.5), Scaling({1: 1.0, 2: 1.89, 4: 3.5}), constant(2.0), constant(10.0))
TEXT = "step: {normal: {mean: 109, std: 3.5}}\nscaling: {1: 1, 2: 1.89, 4: 3.5}\nstart: 2s\ncold_start: 10s\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "job.yaml"
    path.write_text(text, "utf-8")
    return path


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200, deadline=None)
@given(PROFILES, CLOUDS | st.none(), st.text() | ODD | st.none())
@example(GOOD, Cloud("one\x85two", 1, 1.0), "one\x85two")
def test_what_is_saved_is_loaded_again(
    tmp_path: Path, profile: JobProfile, cloud: Cloud | None, measured: str | None
) -> None:
    path = tmp_path / "job.yaml"
    save_profile(path, profile, cloud, measured)
    assert load_profile(path) == (profile, cloud)


def test_a_file_is_read_as_people_write_it(tmp_path: Path) -> None:
    assert load_profile(written(tmp_path, TEXT)) == (GOOD, None)
    assert load_profile(str(tmp_path / "job.yaml")) == (GOOD, None)


def test_a_file_may_have_a_cloud(tmp_path: Path) -> None:
    path = written(tmp_path, TEXT + "measured: by hand\ncloud: {type: p3.8xlarge, market: spot, boot: 45s}\n")
    assert load_profile(path) == (GOOD, cloud_for("p3.8xlarge", "spot", boot=constant(45.0)))


def test_the_cloud_of_a_file_may_be_the_name_of_a_type_alone(tmp_path: Path) -> None:
    assert load_profile(written(tmp_path, TEXT + "cloud: p3.8xlarge\n")) == (GOOD, cloud_for("p3.8xlarge"))


def test_seconds_by_width_stand_for_step_and_scaling(tmp_path: Path) -> None:
    profile, _ = load_profile(written(tmp_path, "step_s: {1: 109, 2: 57.7s, 4: [30, 31]}"))
    assert profile.step.expected_s == pytest.approx(109.0)
    assert profile.scaling.speedups == pytest.approx({1: 1.0, 2: 109 / 57.7, 4: 109 / 30.5})


def test_what_packing_costs_is_read_and_is_a_speed_at_a_part_of_a_device(tmp_path: Path) -> None:
    profile, _ = load_profile(written(tmp_path, TEXT + "packed: {2: 0.7, 3: 0.5}\n"))
    assert profile == replace(GOOD, packed=(0.7, 0.5))
    assert profile.with_parts.speedups == {1 / 3: 0.5, 0.5: 0.7, **GOOD.scaling.speedups}
    assert GOOD.with_parts == GOOD.scaling


def test_a_saved_file_is_small_readable_and_says_what_its_fields_are(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    save_profile(path, GOOD, Cloud("mine", 8, 3.2), measured="3 steps on 1, 2 and 4 devices")
    lines = path.read_text("utf-8").splitlines()
    comment = " ".join(line for line in lines if line.startswith("#"))
    fields = yaml.safe_load(path.read_text("utf-8"))
    assert lines[0].startswith("# How a training job scales")
    assert list(fields) == ["step", "scaling", "start", "cold_start", "measured", "cloud"]
    assert all(f"{name}:" in comment for name in fields)
    assert {"scaling: {1: 1.0, 2: 1.89, 4: 3.5}", "  normal: {mean: 109.0, std: 3.5}", "  price: 3.2"} <= set(lines)
    assert fields["measured"] == "3 steps on 1, 2 and 4 devices"


def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, TEXT)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(SpecError, match=r"job\.yaml: cannot be written: No space left on device"):
        save_profile(path, GOOD)
    assert path.read_text() == TEXT and list(tmp_path.iterdir()) == [path]


def test_a_profile_that_could_not_be_read_again_is_not_saved(tmp_path: Path) -> None:
    message = r"^cannot be saved: scaling width=0\.5: must be a whole number of at least 1$"
    with pytest.raises(SpecError, match=message):
        save_profile(tmp_path / "job.yaml", JobProfile(constant(1.0), Scaling({0.5: 0.6, 1: 1.0})))
    with pytest.raises(SpecError, match=r"scaling\[1\]=2: must be 1"):
        save_profile(tmp_path / "job.yaml", JobProfile(constant(1.0), Scaling({1: 2, 2: 4})))
    assert not list(tmp_path.iterdir())


def test_widths_that_are_whole_are_saved_also_where_they_were_computed(tmp_path: Path) -> None:
    profile = JobProfile(constant(1.0), Scaling({1.0: 1.0, 2.0: 1.9}))
    save_profile(tmp_path / "job.yaml", profile)
    assert load_profile(tmp_path / "job.yaml") == (profile, None)
    assert "scaling: {1: 1.0, 2: 1.9}" in (tmp_path / "job.yaml").read_text()


BAD = [
    ("", "must be a mapping with step and scaling, or step_s, is empty"),
    ("- 1", "must be a mapping with step and scaling, or step_s, is list"),
    ("step: [", "is not YAML"),
    ("stepp: 3\nscaling: {1: 1}", "unknown field 'stepp'; did you mean 'step'?"),
    ("step: 3", "scaling is missing: give step and scaling, or step_s"),
    ("scaling: {1: 1}", "step is missing: give step and scaling, or step_s"),
    ("step_s: {1: 3}\nstep: 3", "step_s gives step as well"),
    ("step: 3\nscaling: {2: 1.9}", "must say the speed-up of width 1"),
    ("step: 10\nscaling: {1: 2, 2: 4}", "scaling[1]=2: must be 1, since step is the time on one device: divide all"),
    ("step: 10\nscaling: {1: 0.5, 2: 1}", "divide all speed-ups by 0.5"),
    ("step: 3\nscaling: {}", "scaling={}: must map numbers of devices to speed-up"),
    ("step: 3\nscaling: 2", "scaling=2: must map numbers of devices to speed-up"),
    ("step: 3\nscaling: {1: 1, 1.5: 1.2}", "scaling width=1.5: must be a whole number of at least 1"),
    ("step: 3\nscaling: {0: 1, 1: 1}", "scaling width=0: must be a whole number of at least 1"),
    ("step: 3\nscaling: {1: 1, two: 2}", "scaling width='two'"),
    ("step: 3\nscaling: {1: 1, 4: 3, 2: 1.9}", "scaling: the widths 1, 4, 2 must increase"),
    ("step: 3\nscaling: {1: 1, 2: 1.8, 2: 1.9}", "2 is given twice"),
    ("step: 3\nscaling: {1: 1, 2: .nan}", "scaling[2]=nan: must be a number greater than 0"),
    ("step: 3\nscaling: {1: 1, 2: -1}", "scaling[2]=-1"),
    ("step: 0\nscaling: {1: 1}", "step=0: must be a positive duration"),
    ("step: -3\nscaling: {1: 1}", "step=-3: must be a positive duration"),
    ("step: .nan\nscaling: {1: 1}", "step=nan: must be a positive duration"),
    ("step: .inf\nscaling: {1: 1}", "step=inf: must be a positive duration"),
    ("step: soon\nscaling: {1: 1}", "step='soon': must be a positive duration"),
    ("step: {norml: {mean: 1, std: 1}}\nscaling: {1: 1}", "step='norml': did you mean 'normal'?"),
    ("step: {normal: {mean: 1}}\nscaling: {1: 1}", "step.normal: std is missing"),
    ("step: {normal: 3}\nscaling: {1: 1}", "step.normal: must be a mapping, is 3"),
    ("step: {normal: {mean: 0, std: 1}}\nscaling: {1: 1}", "step.normal.mean=0: must be a positive duration"),
    ("step: {lognormal: {mean: 1, std: -1}}\nscaling: {1: 1}", "step.lognormal.std=-1"),
    ("step: {lognormal: {mean: 1, sd: 1}}\nscaling: {1: 1}", "step.lognormal: unknown field 'sd'"),
    ("step: {empirical: []}\nscaling: {1: 1}", "step.empirical=[]: must be a list of at least one duration"),
    ("step: {empirical: [1, -2]}\nscaling: {1: 1}", "step.empirical[1]=-2: must be a positive duration"),
    ("step: {}\nscaling: {1: 1}", "step={}: must be a duration or one of normal, lognormal and empirical"),
    ("step_s: {1: 0}", "step_s[1]=0: must be a positive duration"),
    ("step_s: {1: []}", "step_s[1]=[]: must have at least one duration"),
    ("step_s: {2: 50}", "step_s={2: 50}: must say the seconds of width 1"),
    ("step_s: {1: 100, 0.5: 300}", "step_s width=0.5"),
    ("step_s: {1: 1}\npacked: 0.7", "packed=0.7: must map numbers of trials on a device"),
    ("step_s: {1: 1}\npacked: {3: 0.5}", "packed={3: 0.5}: must map numbers of trials on a device, from 2 on"),
    ("step_s: {1: 1}\npacked: {2: 0.7, 4: 0.5}", "packed={2: 0.7, 4: 0.5}: must map"),
    ("step_s: {1: 1}\npacked: {2: 1.1}", "packed[2]=1.1: each of 2 trials on a device is at most as fast as alone"),
    ("step_s: {1: 1}\npacked: {2: 0}", "packed[2]=0: must be a number greater than 0"),
    ("step_s: {1: 1}\nstart: -1", "start=-1: must be a duration of at least 0"),
    ("step_s: {1: 1}\ncloud: {name: x, devices: 1, price: -1}", "cloud: price=-1"),
    ("step_s: {1: 1}\ncloud: p3.8xlarg", "cloud: machine type 'p3.8xlarg': did you mean 'p3.8xlarge'?"),
    ("step_s: {1: 1}\ncloud: {type: p3.8xlarge, data_gb: 150}", "data_gb=150 without data_usd_per_gb"),
]


@pytest.mark.parametrize(("text", "message"), BAD, ids=[text.replace("\n", "; ") for text, _ in BAD])
def test_what_cannot_be_is_refused_with_the_file_and_the_field(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(SpecError) as error:
        load_profile(path)
    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"nothing\.yaml: cannot be read: No such file"):
        load_profile(tmp_path / "nothing.yaml")
