"""A profile as a small file that can be read, edited and used again."""

from __future__ import annotations

from pathlib import Path

from elastune.profile.cloud import Cloud
from elastune.profile.job import JobProfile
from elastune.profile.parse import PROFILE, describe_cloud, describe_profile, parse_cloud, parse_profile
from elastune.yaml_file import checked, read_yaml, write_yaml

COMMENT = """\
How a training job scales, and what its machines cost. Durations are seconds, or texts such as "1.5s" and "2m";
one that varies is {normal: {mean: , std: }}, {lognormal: {mean: , std: }} or {empirical: [...]}.
step: one iteration on one device; scaling: how many times faster it is on so many devices
  (in place of both, step_s: the seconds of a step by number of devices);
packed: how fast each of so many trials on one device is, where 1 is alone;
start: to begin a trial on warm workers; cold_start: on a new machine, after its boot; measured: a note;
cloud: a type of the catalog, such as p3.8xlarge or {type: p3.8xlarge, market: spot}, or your own: its devices, its
  price per hour, the time until a request is served and to boot, and the least time that is billed."""


def load_profile(path: str | Path) -> tuple[JobProfile, Cloud | None]:
    """The profile in a file, and the cloud if it has one."""
    path = Path(path)
    fields = read_yaml(path, "step and scaling, or step_s")
    checked(fields, PROFILE | {"measured", "cloud"}, str(path))
    fields.pop("measured", None)
    given = fields.pop("cloud", None)
    profile = parse_profile(fields, str(path))
    return profile, None if given is None else parse_cloud(given, f"{path}: cloud")


def save_profile(
    path: str | Path, profile: JobProfile, cloud: Cloud | None = None, measured: str | None = None
) -> None:
    """Write a file that `load_profile` reads; `measured` is a note for people, on how it was found out."""
    content = describe_profile(profile)
    if measured is not None:
        content["measured"] = measured
    if cloud is not None:
        content["cloud"] = describe_cloud(cloud)
    write_yaml(Path(path), content, COMMENT)
