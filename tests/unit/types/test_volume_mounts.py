"""What a mount of a volume may say."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.errors import InvalidSpecError
from atoll.types import VolumeMount
from atoll.types.volumes import check_volume_quota, check_volumes, copied_volumes, volume_mount


def test_a_plain_name_is_a_mount_that_can_be_written() -> None:
    assert volume_mount("data") == VolumeMount("data", read_only=False)
    given = VolumeMount("data", read_only=True)
    assert volume_mount(given) is given
    assert [str(volume_mount("data")), str(given)] == ["data", "data (read-only)"]


@pytest.mark.parametrize(
    "wrong",
    [
        ["data"],
        {1: "data"},
        {"/data": 1},
        {"/data": None},
        {"/data": VolumeMount(1)},  # type: ignore[arg-type]
        {"/data": VolumeMount("data", read_only="yes")},  # type: ignore[arg-type]
    ],
)
def test_what_maps_no_paths_to_volumes_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidSpecError):
        check_volumes(wrong)
    with pytest.raises(InvalidSpecError):
        copied_volumes(wrong)


def test_a_mapping_is_copied_and_none_is_empty() -> None:
    given: dict[str, str | VolumeMount] = {"/data": VolumeMount("data", read_only=True), "/more": "more"}
    copied = copied_volumes(given)
    assert copied == given
    assert copied is not given
    assert copied_volumes(None) == {}


def test_a_quota_is_a_number_or_none() -> None:
    check_volume_quota(None)
    check_volume_quota(10)
    for wrong in (-1, 1.5, "10"):
        with pytest.raises(InvalidSpecError):
            check_volume_quota(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["/home/me", ".", "./data", "~/data", "..", "C:\\data"])
def test_a_directory_of_the_host_is_refused_with_the_ways_to_have_its_files(path: str) -> None:
    with pytest.raises(InvalidSpecError, match=r"a path of the host .*`Volumes.create`.*`files.upload`"):
        check_volumes({"/data": path})
