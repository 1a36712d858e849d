from __future__ import annotations

import errno

import pytest

from tests.integration.host.conftest import Inside

pytestmark = pytest.mark.twice

_OVERLAY = """
top = home.layers / "test"
for name in ("lower", "upper", "work", "at"):
    (top / name).mkdir(parents=True)
(top / "lower" / "gone").write_text("lower")
(top / "lower" / "hidden").mkdir()
(top / "lower" / "hidden" / "file").write_text("lower")
(top / "lower" / "kept").write_text("lower")
def mount(upper="upper", lowers=None, work="work"):
    (top / work).mkdir(exist_ok=True)
    Mounts.overlay(lowers or [top / "lower"], top / upper, top / work, top / "at", complete=complete)
"""


def test_an_overlay_takes_changes_and_leaves_what_is_below(inside: Inside) -> None:
    found = inside(
        _OVERLAY
        + """
mount()
(top / "at" / "gone").unlink()
(top / "at" / "new").write_text("new")
os.chown(top / "at" / "new", 1000, 1000)
Mounts.unmount(top / "at")
Mounts.unmount(top / "at")
answer([sorted(os.listdir(top / "upper")), sorted(os.listdir(top / "lower")), sorted(os.listdir(top / "at")),
        os.stat(top / "upper" / "new").st_uid])
"""
    )
    assert found == [["gone", "new"], ["gone", "hidden", "kept"], [], 1000]


def test_a_copied_layer_hides_and_shows_the_same_as_the_original(inside: Inside) -> None:
    found = inside(
        _OVERLAY
        + """
mount()
(top / "at" / "gone").unlink()
(top / "at" / "hidden" / "file").unlink()
(top / "at" / "hidden").rmdir()
(top / "at" / "hidden").mkdir()
(top / "at" / "one").write_text("two names")
os.link(top / "at" / "one", top / "at" / "two")
(top / "at" / "program").write_text("x")
os.chown(top / "at" / "program", 1000, 4)
os.chmod(top / "at" / "program", 0o6755)
Mounts.unmount(top / "at")
copy_tree(top / "upper", top / "copy")
mount("copy", work="another")
program = os.stat(top / "at" / "program")
answer([sorted(os.listdir(top / "at")), os.listdir(top / "at" / "hidden"),
        os.stat(top / "at" / "one").st_ino == os.stat(top / "at" / "two").st_ino,
        [program.st_uid, program.st_gid, oct(program.st_mode)]])
Mounts.unmount(top / "at")
"""
    )
    assert found == [["hidden", "kept", "one", "program", "two"], [], True, [1000, 4, "0o106755"]]


def test_more_layers_than_fit_into_a_page_of_options_can_be_mounted(inside: Inside) -> None:
    found = inside(
        _OVERLAY
        + """
lowers = []
for number in range(60):
    lower = top / ("layer-with-a-long-name-" + "x" * 60) / str(number)
    lower.mkdir(parents=True)
    (lower / f"file{number}").touch()
    (lower / "which").write_text(str(number))
    lowers.append(lower)
mount(lowers=lowers)
answer([len(os.listdir(top / "at")), (top / "at" / "which").read_text()])
Mounts.unmount(top / "at")
"""
    )
    assert found == [61, "0"]


def test_odd_names_of_layers_can_be_mounted(inside: Inside) -> None:
    found = inside(
        _OVERLAY
        + r"""
odd = [top / "a:b", top / "c,d", top / "e\\f", top / "g h"]
for path in odd:
    path.mkdir()
    (path / path.name).touch()
(top / "u:p,p\\er").mkdir()
mount("u:p,p\\er", odd)
(top / "at" / "new").touch()
answer([sorted(os.listdir(top / "at")), [str(path) for path in mounts_below(top)] == [str(top / "at")]])
Mounts.unmount(top / "at")
"""
    )
    assert found == [sorted(["a:b", "c,d", "e\\f", "g h", "new"]), True]


def test_a_read_only_bind_refuses_writing_and_a_plain_one_does_not(inside: Inside) -> None:
    found = inside(
        _OVERLAY
        + """
Mounts.bind(top / "lower", top / "at", read_only=True)
try:
    (top / "at" / "new").touch()
    refused = False
except OSError:
    refused = True
Mounts.unmount(top / "at")
Mounts.bind(top / "lower", top / "at", read_only=False)
(top / "at" / "new").touch()
Mounts.unmount(top / "at")
answer([refused, (top / "lower" / "new").exists(), [str(path) for path in mounts_below(top)]])
"""
    )
    assert found == [True, True, []]


def test_a_tree_with_something_mounted_in_it_is_not_removed(inside: Inside) -> None:
    found = inside(
        _OVERLAY
        + """
from atoll.errors import HostError
(top / "tree" / "at").mkdir(parents=True)
Mounts.bind(top / "lower", top / "tree" / "at", read_only=False)
try:
    remove_tree(top / "tree")
    refused = ""
except HostError as error:
    refused = str(error)
Mounts.unmount(top / "tree" / "at")
remove_tree(top / "tree")
answer(["still mounted" in refused, (top / "lower" / "kept").exists(), (top / "tree").exists()])
"""
    )
    assert found == [True, True, False]


def test_files_of_a_sandboxs_users_are_removed_whatever_their_modes(inside: Inside) -> None:
    found = inside(
        _OVERLAY
        + """
deep = top / "tree" / "a" / "b"
deep.mkdir(parents=True)
(deep / "file").touch()
for path, mode in ((deep / "file", 0), (deep, 0), (deep.parent, 0o1000)):
    os.chown(path, 1000, 1000)
    os.chmod(path, mode)
size = tree_bytes(top / "tree")
remove_tree(top / "tree")
answer([size > 0, (top / "tree").exists()])
"""
    )
    assert found == [True, False]


def test_a_hundred_layers_are_stacked_also_where_the_kernel_takes_them_in_one_page_only(
    inside: Inside,
) -> None:
    found = inside(
        _OVERLAY
        + """
from atoll.host import syscalls

class Older(syscalls.FilesystemContext):
    def option(self, key, value=None):
        if key == "lowerdir+":
            raise OSError(22, "Invalid argument")
        super().option(key, value)

lowers = [top / f"{number:03}-{'x' * 60}" for number in range(120)]
for lower in lowers:
    lower.mkdir()
    (lower / lower.name[:3]).touch()
    (lower / "which").write_text(lower.name[:3])
seen = []
for kind in (syscalls.FilesystemContext, Older):
    syscalls.FilesystemContext = kind
    mount(lowers=lowers)
    seen.append([len(os.listdir(top / "at")), (top / "at" / "which").read_text()])
    Mounts.unmount(top / "at")
answer(seen)
"""
    )
    assert found == [[121, "000"], [121, "000"]]


def test_what_is_mounted_in_a_shared_place_is_cleared_and_never_emptied(inside: Inside) -> None:
    found = inside(
        """
shared, disk = home.run / "shared", home.path / "disk"
(disk / "empty").mkdir(parents=True)
(disk / "file").write_text("kept")
Mounts.share(shared)
Mounts.share(shared)
place = shared / "one"
(place / "empty").mkdir(parents=True)
Mounts.bind(disk, place, read_only=False)
Mounts.bind(disk, place / "empty", read_only=True)
# Not a place where nothing is mounted any more.
remove_empty_place(place)
held = os.open(place / "file", os.O_RDONLY)
seen = sorted(os.listdir(place / "empty"))
Mounts.clear(place)
Mounts.clear(place)
(shared / "two" / "file").mkdir(parents=True)
(shared / "two" / "file" / "in it").write_text("x")
remove_empty_place(shared / "two")
answer([seen, sorted(os.listdir(disk)), place.exists(), os.listdir(shared), len(mounts_below(shared))])
os.close(held)
Mounts.unmount(shared)
"""
    )
    assert found == [["empty", "file"], ["empty", "file"], False, ["two"], 1]


def test_what_is_bound_below_is_read_only_wherever_it_appears_and_follows_no_link(inside: Inside) -> None:
    found = inside(
        """
shared, disk, source, other = home.run / "shared", home.path / "disk", home.path / "source", home.path / "other"
for directory in (disk / "here", source, other):
    directory.mkdir(parents=True)
(source / "file").write_text("kept")
(disk / "away").symlink_to(other)
Mounts.share(shared)
place = shared / "one"
place.mkdir()
# As a gofer has it: its own mount of the place, to which what is mounted there later propagates.
peer = home.path / "peer"
peer.mkdir()
Mounts.bind(place, peer, read_only=False)
Mounts.bind(disk, place, read_only=False)
Mounts.bind_below(source, place, "here")
refused = []
for top in (place, peer):
    try:
        (top / "here" / "new").touch()
    except OSError as error:
        refused.append(error.errno)
seen = (peer / "here" / "file").read_text()
try:
    Mounts.bind_below(source, place, "away")
except OSError as error:
    refused.append(error.errno)
Mounts.detach(peer)
Mounts.detach(peer)
Mounts.clear(place)
answer([seen, refused, os.listdir(other), place.exists()])
Mounts.unmount(shared)
"""
    )
    assert found == ["kept", [errno.EROFS, errno.EROFS, errno.ELOOP], [], False]
