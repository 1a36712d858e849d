"""Everything that is stored is checked, and repaired where there is a second copy."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from atoll.host import TreeChecksums
from atoll.supervisor.integrity.checksums import CHECKSUMS_FILE
from atoll.supervisor.integrity.repair import mend_tree
from atoll.types import Damage
from tests.unit.supervisor.harness import Harness, with_harness


async def fsck(harness: Harness, *, repair: bool = False) -> Any:
    answer = await harness.ask("POST", "/v1/fsck", {"repair": repair})
    assert answer.status == 200, answer.body
    return answer.json


def told(report: Any) -> list[tuple[str, str, str]]:
    return [
        (part["kind"], part["name"], part["state"])
        for part in report["parts"]
        if part["state"] in ("damaged", "repaired")
    ]


def state_file(checkpoint: Path) -> Path:
    names = (CHECKSUMS_FILE, "boot")
    return next(path for path in sorted(checkpoint.iterdir()) if path.name not in names)


def make_base(harness: Harness) -> Path:
    rootfs = harness.images.get("base").lowers[0]  # type: ignore[union-attr]
    (rootfs / "bin").mkdir(parents=True, exist_ok=True)
    (rootfs / "bin" / "tool").write_bytes(b"good")
    return rootfs


@with_harness
async def test_an_undamaged_home_whole_and_every_kind_of_part_is_checked(harness: Harness) -> None:
    make_base(harness)
    made = await harness.create(name="work")
    await harness.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/snapshots", {"name": "kept"})
    await harness.ask("POST", "/v1/volumes", {"name": "data"})
    await harness.asleep(made)
    report = await fsck(harness)
    assert (report["whole"], told(report)) == (True, [])
    assert {part["kind"] for part in report["parts"]} == {"memory", "layer", "image", "record"}
    records = {part["name"] for part in report["parts"] if part["kind"] == "record"}
    assert records == {"work", "kept", "data"}


@with_harness
async def test_a_lost_disk_layer_and_volume_are_listed_with_what_needs_them(harness: Harness) -> None:
    make_base(harness)
    volume = (await harness.ask("POST", "/v1/volumes", {"name": "data"})).json["volume_id"]
    made = await harness.create(name="work", volumes={"/data": "data"})
    await harness.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/snapshots", {"name": "kept"})
    await harness.asleep(made)
    [layer] = harness.layers.ids()
    os.rename(harness.layers.path(layer), harness.home.path / "away")
    os.rename(harness.home.sandboxes / made["sandbox_id"] / "d1", harness.home.path / "disk")
    os.rename(harness.home.volumes / volume / "data", harness.home.path / "data")
    report = await fsck(harness, repair=True)
    assert not report["whole"]
    lost = {part["name"]: part["needed_by"] for part in report["parts"] if part["state"] == "damaged"}
    assert lost == {layer: ["kept"], "work": [made["sandbox_id"]], "data": ["data", "work"]}


@with_harness
async def test_a_file_of_a_memory_comes_back_from_a_checkpoint_that_has_the_same(harness: Harness) -> None:
    make_base(harness)
    made = await harness.create(name="work")
    await harness.asleep(made)
    await harness.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/snapshots", {"name": "kept"})
    lost = state_file(harness.system.paths.checkpoint(made["sandbox_id"]))
    lost.unlink()
    assert told(await fsck(harness)) == [("memory", "work", "damaged")]
    report = await fsck(harness, repair=True)
    assert (report["whole"], told(report)) == (True, [("memory", "work", "repaired")])
    assert lost.stat().st_nlink == 2
    assert told(await fsck(harness)) == []


@with_harness
async def test_a_memory_without_a_second_copy_stays_as_it_is(harness: Harness) -> None:
    make_base(harness)
    made = await harness.create(name="work")
    await harness.asleep(made)
    file = state_file(harness.system.paths.checkpoint(made["sandbox_id"]))
    file.write_bytes(file.read_bytes() + b"more")
    damaged = file.read_bytes()
    report = await fsck(harness, repair=True)
    assert (report["whole"], told(report)) == (False, [("memory", "work", "damaged")])
    assert file.read_bytes() == damaged


@with_harness
async def test_an_image_is_repaired_from_the_package_that_contains_it(harness: Harness) -> None:
    rootfs = make_base(harness)
    await harness.create()
    assert (await fsck(harness))["whole"]  # now it has checksums
    before = (rootfs / "bin" / "tool").stat()
    (rootfs / "bin" / "tool").write_bytes(b"BAD!")
    assert [(kind, state) for kind, _, state in told(await fsck(harness, repair=True))] == [
        ("image", "damaged")
    ]

    harness.images.package = source = harness.home.path / "source"
    (source / "bin").mkdir(parents=True)
    (source / "bin" / "tool").write_bytes(b"good")
    os.utime(source / "bin" / "tool", ns=(before.st_atime_ns, before.st_mtime_ns))
    report = await fsck(harness, repair=True)
    assert report["whole"]
    assert (rootfs / "bin" / "tool").read_bytes() == b"good"
    assert (rootfs / "bin" / "tool").stat().st_ino == before.st_ino  # disks stand on it


@with_harness
async def test_the_lost_copy_of_a_record_is_written_again(harness: Harness) -> None:
    make_base(harness)
    await harness.ask("POST", "/v1/volumes", {"name": "data"})
    assert (await fsck(harness))["whole"]
    [copy] = harness.home.volumes.glob("*/row.json")
    kept = copy.read_bytes()
    copy.write_bytes(kept[:-1])
    assert told(await fsck(harness)) == [("record", "data", "damaged")]
    assert told(await fsck(harness, repair=True)) == [("record", "data", "repaired")]
    assert copy.read_bytes() == kept


@with_harness
async def test_an_image_that_is_missing_is_told_with_what_needs_it(harness: Harness) -> None:
    make_base(harness)
    made = await harness.create(name="work")
    await harness.asleep(made)
    harness.images.have = False
    report = await fsck(harness)
    lost = [part for part in report["parts"] if part["state"] == "damaged"]
    assert [(part["kind"], part["needed_by"]) for part in lost] == [("image", ["work"])]


def test_a_repair_follows_no_link_out_of_the_tree(tmp_path: Path) -> None:
    tree, source, outside = tmp_path / "tree", tmp_path / "source", tmp_path / "outside"
    for directory in (tree, source / "way", outside):
        directory.mkdir(parents=True)
    (outside / "file").write_bytes(b"theirs")
    (tree / "way").symlink_to(outside)
    (tree / "file").symlink_to(outside / "file")
    for name in ("way/file", "file"):
        (source / name).write_bytes(b"good")
        with contextlib.suppress(OSError):
            mend_tree(tree, [Damage(path=name, what="it has changed")], source)
    assert (outside / "file").read_bytes() == b"theirs"


def test_a_lost_file_of_a_tree_is_written_again_with_its_mode(tmp_path: Path) -> None:
    tree, source = tmp_path / "tree", tmp_path / "source"
    for directory in (tree, source):
        directory.mkdir()
    (source / "tool").write_bytes(b"good")
    (source / "tool").chmod(0o755)
    mend_tree(tree, [Damage(path="tool", what="it is missing"), Damage(path="no", what="?")], source)
    assert ((tree / "tool").read_bytes(), (tree / "tool").stat().st_mode & 0o777) == (b"good", 0o755)
    assert not TreeChecksums(tmp_path).has("tree")
