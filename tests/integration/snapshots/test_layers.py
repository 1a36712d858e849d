"""Disks made of layers: what is written stays, is kept apart, and behaves like a plain disk."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
from typing import Any

import pytest
from tests.integration.snapshots.disks import Disks

from atoll.errors import HostError, InternalError
from atoll.host import remove_tree

pytestmark = pytest.mark.twice


def test_the_same_writable_layer_comes_back_after_an_unmount(disks: Disks) -> None:
    root = disks.start("a")
    (root / "etc/name").write_text("changed")
    (root / "etc/gone").unlink()
    disks.stop("a")
    assert not (root / "etc").exists()
    disks.again("a")
    assert (root / "etc/name").read_text() == "changed"
    assert not (root / "etc/gone").exists()


def test_mounting_twice_is_mounting_once(disks: Disks) -> None:
    root = disks.start("a")
    assert disks.again("a") == root
    disks.stop("a")
    assert not (root / "etc").exists()
    disks.stop("a")


def test_the_image_never_changes(disks: Disks) -> None:
    root = disks.start("a")
    (root / "etc/name").write_text("changed")
    (root / "tool").write_text("changed")
    (root / "etc/gone").unlink()
    assert (disks.image / "etc/name").read_text() == "image"
    assert (disks.image / "lib/tool").read_text() == "tool"
    assert (disks.image / "etc/gone").exists()


def test_branches_of_a_frozen_layer_go_their_own_ways(disks: Disks) -> None:
    root = disks.start("a")
    (root / "both").write_text("before")
    (root / "etc/gone").unlink()
    stack = disks.freeze("a")
    first, second = disks.start("a", stack), disks.start("b", stack)
    assert [(each / "both").read_text() for each in (first, second)] == ["before", "before"]
    assert not (second / "etc/gone").exists()
    (first / "both").write_text("first")
    (second / "etc/gone").write_text("again")
    assert (second / "both").read_text() == "before"
    assert not (first / "etc/gone").exists()


def test_a_chain_of_frozen_layers_keeps_everything(disks: Disks) -> None:
    root = disks.start("a")
    for number in range(8):
        (root / f"file-{number}").write_text(str(number))
        (root / "etc/name").write_text(str(number))
        root = disks.start("a", disks.freeze("a"))
    assert [(root / f"file-{number}").read_text() for number in range(8)] == [str(n) for n in range(8)]
    assert (root / "etc/name").read_text() == "7"
    assert len(disks.stack("a")) == (8 if disks.complete else 0)


def test_owners_and_modes_survive_branches(disks: Disks) -> None:
    root = disks.start("a")
    (root / "mine").mkdir(mode=0o750)
    os.chown(root / "mine", 1000, 1000)
    (root / "mine/tool").write_text("x")
    os.chown(root / "mine/tool", 1000, 44)
    (root / "mine/tool").chmod(0o4755)
    root.chmod(0o711)
    root = disks.start("b", disks.freeze("a"))
    info = (root / "mine/tool").stat()
    assert (info.st_uid, info.st_gid, stat.S_IMODE(info.st_mode)) == (1000, 44, 0o4755)
    assert stat.S_IMODE((root / "mine").stat().st_mode) == 0o750
    assert stat.S_IMODE(root.stat().st_mode) == 0o711


def test_hard_links_made_before_a_branch_stay_links(disks: Disks) -> None:
    root = disks.start("a")
    (root / "one").write_text("x")
    os.link(root / "one", root / "etc/two")
    root = disks.start("b", disks.freeze("a"))
    with open(root / "one", "a") as file:
        file.write("y")
    assert (root / "etc/two").read_text() == "xy"
    assert (root / "one").stat().st_ino == (root / "etc/two").stat().st_ino


def test_a_hard_link_of_the_image_stays_one_over_branches_on_a_complete_disk(disks: Disks) -> None:
    root = disks.start("a")
    with open(root / "tool", "a") as file:
        file.write("+a")
    assert (root / "lib/tool").read_text() == ("tool+a" if disks.complete else "tool")
    root = disks.start("b", disks.freeze("a"))
    assert (root / "lib/tool").read_text() == ("tool+a" if disks.complete else "tool")
    with open(root / "lib/tool", "a") as file:
        file.write("+b")
    assert (root / "tool").read_text() == ("tool+a+b" if disks.complete else "tool+a")
    disks.stop("b")
    root = disks.again("b")
    assert (root / "lib/tool").read_text() == ("tool+a+b" if disks.complete else "tool+b")


def change_times(disks: Disks, name: str) -> dict[str, int]:
    """When each entry of a sandbox's writable layer changed last."""
    upper = disks.directory(name) / "upper"
    return {str(path.relative_to(upper)): path.lstat().st_ctime_ns for path in upper.rglob("*")}


def test_a_disk_whose_hard_links_are_settled_does_not_change_when_it_is_unmounted(disks: Disks) -> None:
    root = disks.start("a")
    (root / "deep/er").mkdir(parents=True)
    (root / "one").write_text("x")
    os.link(root / "one", root / "two")
    os.link(root / "one", root / "deep/er/three")
    root = disks.start("b", disks.freeze("a"))
    for content in ("y", "z"):
        for name in ("one", "tool"):
            with open(root / name, "a") as file:
                file.write(content)
        disks.layers.settle(disks.directory("b"))
        before = change_times(disks, "b")
        os.close(os.open(root / "deep/er/three", os.O_RDONLY))
        disks.stop("b")
        assert change_times(disks, "b") == before
        root = disks.again("b")
        assert (root / "deep/er/three").read_text() == (root / "one").read_text()
        assert change_times(disks, "b") == before


def test_settling_the_hard_links_of_a_disk_that_is_not_mounted_does_nothing(disks: Disks) -> None:
    disks.start("a")
    disks.stop("a")
    disks.layers.settle(disks.directory("a"))


def test_a_directory_of_the_image_renames_on_a_complete_disk(disks: Disks) -> None:
    root = disks.start("a")
    if not disks.complete:
        with pytest.raises(OSError) as caught:
            (root / "lib/deep").rename(root / "shallow")
        assert caught.value.errno == errno.EXDEV
        return
    (root / "lib/deep").rename(root / "shallow")
    (root / "shallow/er/new").write_text("new")
    root = disks.start("b", disks.freeze("a"))
    assert (root / "shallow/er/file").read_text() == "deep"
    assert (root / "shallow/er/new").read_text() == "new"
    assert not (root / "lib/deep").exists()


def test_a_directory_made_before_a_branch_renames_after_it(disks: Disks) -> None:
    root = disks.start("a")
    (root / "made/in").mkdir(parents=True)
    (root / "made/in/file").write_text("x")
    root = disks.start("b", disks.freeze("a"))
    (root / "made").rename(root / "renamed")
    assert (root / "renamed/in/file").read_text() == "x"


def test_a_replaced_directory_hides_what_the_image_had(disks: Disks) -> None:
    root = disks.start("a")
    shutil.rmtree(root / "lib")
    (root / "lib").mkdir()
    (root / "lib/new").write_text("x")
    root = disks.start("b", disks.freeze("a"))
    assert os.listdir(root / "lib") == ["new"]


def test_a_freeze_that_nobody_wrote_down_is_undone(disks: Disks) -> None:
    root = disks.start("a")
    (root / "work").write_text("done")
    disks.freeze("a")
    # Here a crash: the stack of before is all that the next supervisor knows.
    assert (disks.again("a") / "work").read_text() == "done"


def test_a_freeze_and_branch_that_nobody_wrote_down_are_undone(disks: Disks) -> None:
    root = disks.start("a")
    (root / "work").write_text("done")
    stack = disks.freeze("a")
    disks.layers.branch(disks.directory("a"), stack)
    assert (disks.again("a") / "work").read_text() == "done"


def test_what_was_written_above_a_freeze_that_a_power_cut_made_unknown_is_kept_with_what_is_below(
    disks: Disks,
) -> None:
    if not disks.complete:
        return  # nothing stands on a frozen layer there
    (disks.start("a") / "work").write_text("below")
    directory = disks.directory("a")
    stack = disks.freeze("a")
    disks.layers.branch(directory, stack)
    root = disks.layers.mount([disks.image], stack, directory)
    (root / "later").write_text("above")
    disks.stop("a")
    assert disks.layers.undo_unknown_freeze(directory, ()) == stack
    root = disks.again("a")
    assert ((root / "work").read_text(), (root / "later").read_text()) == ("below", "above")


def test_a_rollback_leaves_the_frozen_layer_of_the_time_before_alone(disks: Disks) -> None:
    (disks.start("a") / "work").write_text("old")
    old = disks.freeze("a")
    (disks.start("a", old) / "work").write_text("new")
    new = disks.freeze("a")
    assert (disks.start("a", old) / "work").read_text() == "old"
    assert (disks.start("b", new) / "work").read_text() == "new"


def test_a_mounted_disk_is_not_frozen(disks: Disks) -> None:
    disks.start("a")
    with pytest.raises(InternalError):
        disks.layers.freeze(disks.directory("a"))


def test_a_home_that_was_copied_to_another_place_still_mounts(disks: Disks) -> None:
    (disks.start("a") / "work").write_text("done")
    disks.stop("a")
    moved = disks.path / "moved"
    shutil.copytree(disks.image, moved)
    shutil.rmtree(disks.image)
    moved.rename(disks.image)
    root = disks.again("a")
    assert (root / "work").read_text() == "done"
    assert (root / "etc/name").read_text() == "image"


def test_a_layer_that_is_not_there_is_an_error_that_says_so(disks: Disks) -> None:
    with pytest.raises(HostError, match="is missing"):
        disks.start("b", ("0" * 20,))


def test_a_layer_that_went_missing_in_the_middle_of_a_chain_is_named(disks: Disks) -> None:
    disks.start("a")
    (lower,) = disks.freeze("a")
    disks.start("b", (lower,))
    chain = disks.freeze("b")
    disks.start("c", chain)
    disks.stop("c")
    remove_tree(disks.layers.path(lower))
    if disks.complete:
        with pytest.raises(HostError, match=f"{lower} is missing"):
            disks.again("c")
    else:  # there a disk stands on no layer but has its own copy
        assert disks.again("c").is_dir()


def test_sizes_are_those_of_what_changed(disks: Disks) -> None:
    root = disks.start("a")
    empty = disks.layers.sizes_changed(disks.directory("a"))
    (root / "big").write_bytes(os.urandom(1 << 20))
    os.sync()
    changed = disks.layers.sizes_changed(disks.directory("a"))
    assert (1 << 20) <= changed - empty < (2 << 20)
    (layer, *_) = disks.freeze("a")
    assert (1 << 20) <= disks.layers.size_bytes(layer) < (2 << 20)


def test_a_disk_can_be_mounted_while_an_ending_process_still_has_its_old_mount(disks: Disks) -> None:
    root = disks.start("a")
    (root / "etc/name").write_text("changed")
    # In a mount namespace of its own, so that it keeps the mount that ends here.
    with subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", "echo; read line; sleep 0.5"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout
        assert other.stdin
        other.stdout.readline()
        disks.stop("a")
        other.stdin.close()
        disks.again("a")
        assert (root / "etc/name").read_text() == "changed"


@pytest.mark.parametrize("names", [3, 1200])
def test_a_layer_is_frozen_while_the_mount_that_was_left_is_still_in_use(disks: Disks, names: int) -> None:
    root = disks.start("a")
    for name in range(names):
        (root / str(name)).touch()
    (root / "etc/name").write_text("changed")
    (root / "new").write_text("below")
    root.chmod(0o711)
    directory = disks.directory("a")
    left = disks.layers.leave(directory)
    try:
        stack = (disks.layers.freeze(directory), *disks.stack("a"))
        stack = disks.layers.branch(directory, stack)
        again = disks.layers.mount([disks.image], stack, directory)
        assert ((again / "etc/name").read_text(), (again / "new").read_text()) == ("changed", "below")
        assert stat.S_IMODE(again.stat().st_mode) == 0o711
        (again / "new").write_text("above")
    finally:
        left()
    assert (again / "new").read_text() == "above"


def test_a_disk_that_is_not_mounted_cannot_be_left(disks: Disks) -> None:
    disks.start("a")
    disks.stop("a")
    with pytest.raises(HostError, match="is not mounted"):
        disks.layers.leave(disks.directory("a"))


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_a_freeze_that_was_cut_in_the_middle_is_undone(
    disks: Disks, moved: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = disks.start("a")
    for name in ("one", "two", "three"):
        (root / name).write_text(name)
    root.chmod(0o711)
    disks.stop("a")
    renames = 0

    def rename(*given: Any, do: Any = os.rename, **more: Any) -> None:
        nonlocal renames
        if "src_dir_fd" in more and (renames := renames + 1) > moved:
            raise OSError("a power cut")
        do(*given, **more)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", rename)
        with pytest.raises(OSError, match="a power cut"):
            disks.layers.freeze(disks.directory("a"))
    root = disks.again("a")
    assert {name: (root / name).read_text() for name in ("one", "two", "three")} == {
        name: name for name in ("one", "two", "three")
    }
    assert stat.S_IMODE(root.stat().st_mode) == 0o711
    assert not (disks.directory("a") / "freezing").exists()
    disks.stop("a")
    assert (disks.start("b", disks.freeze("a")) / "two").read_text() == "two"
