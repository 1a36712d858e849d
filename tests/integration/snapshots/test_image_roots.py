"""An image as a root, with mount points that it lacks, for disks that the engine keeps."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from tests.integration.snapshots.disks import Disks

from atoll.errors import HostError

pytestmark = pytest.mark.twice


def everything(tree: Path) -> list[tuple[str, int]]:
    """Each path below a directory, with its change time."""
    return sorted(
        (str(Path(path, name)), os.lstat(Path(path, name)).st_ctime_ns)
        for path, directories, files in os.walk(tree)
        for name in (*directories, *files)
    )


def test_an_image_is_shown_with_mount_points_and_is_not_written_to(disks: Disks) -> None:
    disks.make_image()
    (disks.image / "lib/inward").symlink_to("/etc/../lib/deep")
    (disks.image / "etc/up").symlink_to("../lib/new")
    (disks.image / "etc").chmod(0o711)
    before = everything(disks.image)
    directory = disks.directory("a")
    directory.mkdir(parents=True)
    targets = ["/.atoll", "/etc", "/etc/more/deep", "/lib/inward/point", "/etc/up/there", "/etc/up"]
    root = disks.image_roots.mount(disks.image, targets, directory)
    for made in (".atoll", "etc/more/deep", "lib/deep/point", "lib/new/there"):
        assert (root / made).is_dir(), made
        assert not os.listdir(root / made)
    assert (root / "etc/name").read_text() == "image"
    assert (root / "etc").stat().st_mode & 0o777 == 0o711
    with pytest.raises(OSError) as refused:
        (root / "etc/name").write_text("changed")
    assert refused.value.errno == errno.EROFS
    assert disks.image_roots.mount(disks.image, targets, directory) == root
    disks.layers.unmount(directory)
    assert not os.listdir(root)
    assert everything(disks.image) == before


def test_no_link_of_an_image_leads_out_of_it_or_in_circles_for_ever(disks: Disks) -> None:
    disks.make_image()
    outside = disks.path / "outside"
    outside.mkdir()
    (disks.image / "out").symlink_to("../../../../../.." + str(outside))
    (disks.image / "round").symlink_to("about")
    (disks.image / "about").symlink_to("round")
    directory = disks.directory("a")
    directory.mkdir(parents=True)
    with pytest.raises(HostError, match="leads in circles"):
        disks.image_roots.mount(disks.image, ["/round/point"], directory)
    root = disks.image_roots.mount(disks.image, ["/out/point", "/../over"], directory)
    assert os.listdir(outside) == []
    assert (root / str(outside).lstrip("/") / "point").is_dir()
    assert (root / "over").is_dir()
    disks.layers.unmount(directory)
