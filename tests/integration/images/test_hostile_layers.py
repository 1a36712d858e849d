"""Layers made to do harm, and layers that are merely odd: what is unpacked stays in its directory."""

from __future__ import annotations

import contextlib
import io
import json
import os
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.registry import File, ImageSource, serving
from tests.registry.images import directory, hard_link, symlink

from atoll.errors import AtollError, ImagePullError, UnsupportedError
from atoll.host import Mounts, is_host_root, remove_tree
from atoll.images import Image, Images, PullSettings, Stacking
from atoll.types import Progress


def silent(_: Progress) -> None:
    pass


def stacking_here() -> Stacking:
    return "trusted" if is_host_root() else "user"


async def pulled(path: Path, *layers: list[File], stacking: Stacking | None = None) -> Image:
    with serving() as registry:
        images = Images(path / "images", PullSettings(), stacking or stacking_here())
        return await images.ensure(registry.put("app", "1", ImageSource(layers)), silent)


@contextlib.contextmanager
def mounted(image: Image) -> Iterator[Path]:
    """The image's layers, stacked."""
    top = Path(tempfile.mkdtemp(prefix=".mounted-", dir=image.lowers[0].parents[1]))
    for name in ("upper", "work", "root"):
        (top / name).mkdir()
    Mounts.overlay(image.lowers, top / "upper", top / "work", top / "root", complete=is_host_root())
    try:
        yield top / "root"
    finally:
        Mounts.unmount(top / "root")
        remove_tree(top)


def names(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


@pytest.mark.parametrize(
    "files",
    [
        [File("../out", b"x")],
        [File("a/../../out", b"x")],
        [hard_link("in", "../../out")],
        [File("in/.."), File("x")],
        [symlink("d", "/nowhere"), File("d/out", b"x")],
        [directory("d"), File(".wh...", b"")],
        [File("a"), hard_link("b", "missing")],
        [directory("d"), hard_link("b", "d")],
        [File("a" * 300)],
    ],
    ids=str,
)
async def test_an_entry_that_cannot_be_right_is_refused_and_leaves_nothing(
    tmp_path: Path, files: list[File]
) -> None:
    with pytest.raises(AtollError):
        await pulled(tmp_path, files)
    assert list((tmp_path / "images").glob("layers/[!.]*")) == []
    assert not list(tmp_path.rglob("out"))  # noqa: ASYNC240


async def test_links_of_a_layer_lead_nowhere_but_into_the_layer(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    image = await pulled(
        tmp_path,
        [
            directory(str(outside)[1:]),
            symlink("absolute", str(outside)),
            File("absolute/planted", b"x"),
            symlink("up", "../../../../../../../.." + str(outside)),
            File("up/climbed", b"x"),
            File("/etc/rooted", b"x"),
            symlink("secret", str(outside / "secret")),
            File("secret", b"mine"),
        ],
    )
    (lower,) = image.lowers
    assert os.listdir(outside) == ["secret"]
    assert (outside / "secret").read_text() == "secret"
    inside = lower / str(outside)[1:]
    assert sorted(os.listdir(inside)) == ["climbed", "planted"]
    assert (lower / "secret").read_bytes() == b"mine"
    assert not (lower / "secret").is_symlink()
    assert (lower / "etc/rooted").read_bytes() == b"x"


async def test_devices_are_left_out_and_attributes_that_rule_the_host_too(tmp_path: Path) -> None:
    odd = {"user.overlay.redirect": "/etc", "trusted.overlay.opaque": "y", "user.fine": "yes"}
    image = await pulled(
        tmp_path,
        [
            directory("dev"),
            File("dev/mem", kind=tarfile.CHRTYPE),
            File("dev/sda", kind=tarfile.BLKTYPE),
            File("pipe", kind=tarfile.FIFOTYPE, mode=0o622),
            directory("d", attributes=odd),
        ],
    )
    (lower,) = image.lowers
    assert names(lower) == ["d", "dev", "pipe"]
    assert stat.S_ISFIFO((lower / "pipe").lstat().st_mode)
    assert os.listxattr(lower / "d") == ["user.fine"]


@pytest.mark.parametrize("key, value", [("user." + "k" * 300, "v"), ("security.capability", "rubbish")])
async def test_an_attribute_that_cannot_be_is_named(tmp_path: Path, key: str, value: str) -> None:
    with pytest.raises(ImagePullError, match=f'its entry "f" has the attribute "{key[:90]}'):
        await pulled(tmp_path, [File("f", attributes={key: value})])


async def test_an_attribute_that_a_file_system_cannot_hold_is_no_full_disk(tmp_path: Path) -> None:
    big = {"user.big": "v" * 65536}
    try:
        image = await pulled(tmp_path, [File("f", attributes=big)])
    except ImagePullError as error:
        assert 'its entry "f" has the attribute "user.big" of 65536 bytes' in str(error)
    else:
        assert os.getxattr(image.lowers[0] / "f", "user.big") == b"v" * 65536


async def test_whiteouts_hide_what_lies_below_and_nothing_else(tmp_path: Path) -> None:
    image = await pulled(
        tmp_path,
        [
            directory("kept"),
            File("kept/a"),
            File("kept/b"),
            directory("emptied"),
            File("emptied/old"),
            directory("gone"),
            File("gone/x"),
            directory("again"),
            File("again/old"),
        ],
        [
            File("kept/.wh.a"),
            File("emptied/early"),
            File("emptied/.wh..wh..opq"),
            File("emptied/late"),
            File(".wh.gone"),
            File(".wh.again"),
            directory("again"),
            File("again/new"),
            File(".wh.never-there"),
        ],
    )
    with mounted(image) as root:
        assert names(root) == [
            "again",
            "again/new",
            "emptied",
            "emptied/early",
            "emptied/late",
            "kept",
            "kept/b",
        ]


def modes(root: Path, *paths: str) -> list[tuple[str, int, int]]:
    found = [(root / path).lstat() for path in paths]
    return [(oct(stat.S_IMODE(one.st_mode)), one.st_uid, one.st_gid) for one in found]


async def test_a_directory_that_a_layer_does_not_tell_of_is_as_the_layers_below_have_it(
    tmp_path: Path,
) -> None:
    below = [
        directory("home", mode=0o711),
        directory("home/app", mode=0o700, uid=7, gid=8, attributes={"user.mine": "1"}),
        directory("cache", mode=0o2775, gid=9),
        directory("noted", attributes={"user.mine": "2"}),
        directory("gone", mode=0o700, uid=7),
        directory("replaced", mode=0o700, uid=7),
        directory("told", mode=0o700, uid=7),
        directory("emptied", mode=0o700, uid=7),
    ]
    above = [
        File("home/app/lib/a.jar"),
        File("cache/.wh.nothing"),
        File("noted/x"),
        File("gone/new"),
        File(".wh.gone"),
        File(".wh.replaced"),
        File("replaced"),
        directory("told", mode=0o750),
        File("told/x"),
        File("emptied/.wh..wh..opq"),
        File("new/x"),
    ]
    everything = ("home", "home/app", "home/app/lib", "cache", "gone", "told", "emptied", "new")
    plain = ("0o755", 0, 0)
    wanted = [
        ("0o711", 0, 0),
        ("0o700", 7, 8),
        plain,
        ("0o2775", 0, 9),
        plain,
        ("0o750", 0, 0),
        ("0o700", 7, 0),
        plain,
    ]
    for layers in (
        [below, above],
        [below, above, [File("home/app/again")]],
        [below, [File("home/app/x")], above],
    ):
        image = await pulled(tmp_path / str(len(layers[1])), *layers)
        assert len(image.lowers) == len(layers) + 1
        with mounted(image) as root:
            assert modes(root, *everything) == wanted
            assert os.listxattr(root / "home/app") == ["user.mine"]
            assert os.getxattr(root / "noted", "user.mine") == b"2"
            assert (root / "replaced").is_file()
            assert (root / "home/app/lib/a.jar").is_file()
    assert len((await pulled(tmp_path, [directory("a")], [File("a/x"), File("b/x")])).lowers) == 2


async def test_what_an_opaque_directory_or_a_file_hides_says_nothing_of_what_is_above(tmp_path: Path) -> None:
    secret = {"mode": 0o700, "uid": 7}
    below = [directory("opaque/in", **secret), directory("file/in", **secret), directory("gone/in", **secret)]
    hiding = [File("opaque/.wh..wh..opq"), File("file"), File(".wh.gone")]
    above = [File("opaque/in/x"), directory("file"), File("file/in/x"), File("gone/in/x")]
    image = await pulled(tmp_path, below, hiding, above)
    assert len(image.lowers) == 3
    with mounted(image) as root:
        assert modes(root, "opaque/in", "file/in", "gone/in") == [("0o755", 0, 0)] * 3


async def test_how_deep_a_directory_lies_makes_no_difference(tmp_path: Path) -> None:
    # Together deeper than any path is long: links shorten the way there.
    deep, deeper = "d/" * 1500, "s/" + ("e" * 200 + "/") * 19
    way = symlink("s", deep.rstrip("/"))
    below = [way, directory(deep, uid=7), directory(deeper, mode=0o711, uid=8)]
    image = await pulled(tmp_path, below, [way, File(deep + "x"), File(deeper + "x")])
    assert len(image.lowers) == 3
    with mounted(image) as root:
        assert modes(root, deep, deeper) == [("0o755", 7, 0), ("0o711", 8, 0)]
        assert (root / deeper / "x").is_file()


async def test_what_many_layers_say_of_many_directories_is_looked_at_once(tmp_path: Path) -> None:
    chain = "/".join(["d"] * 400)
    layers = [[File(f"{chain}/{number}")] for number in range(20)]
    before = os.times()
    image = await pulled(tmp_path, [directory("d", mode=0o711)], *layers)
    # Of a processor, as others may use it too. For each directory from the root down in each layer, it is a minute.
    assert sum(os.times()[:4]) - sum(before[:4]) < 30
    with mounted(image) as root:
        assert modes(root, "d", chain) == [("0o711", 0, 0), ("0o755", 0, 0)]


async def test_where_layers_cannot_be_mounted_they_are_merged_to_the_same(tmp_path: Path) -> None:
    image = await pulled(
        tmp_path,
        [directory("d"), File("d/old"), File("d/both", b"1"), directory("e"), File("e/x"), File("f", b"f")],
        [
            File("d/early"),
            File("d/.wh..wh..opq"),
            File("d/both", b"2"),
            File(".wh.e"),
            hard_link("g", "d/both"),
        ],
        stacking="none",
    )
    (lower,) = image.lowers
    assert names(lower) == ["d", "d/both", "d/early", "f", "g"]
    assert (lower / "d/both").read_bytes() == b"2"
    assert (lower / "g").stat().st_nlink == 2


@pytest.mark.parametrize("said", ["{outside}", "../../outside", "sha256:0", "sha256:" + "../" * 21 + "."])
async def test_a_layer_is_never_a_directory_of_the_host(tmp_path: Path, said: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    described = json.dumps({"rootfs": {"diff_ids": [said.format(outside=outside)]}}).encode()
    images = Images(tmp_path / "images")
    with serving() as registry, pytest.raises(ImagePullError, match="is not a digest"):
        await images.ensure(registry.put("app", "1", ImageSource([[File("a")]], described=described)), silent)
    assert images.list() == []
    assert outside.is_dir()


@pytest.mark.parametrize("described", [b'{"x":' + b"[" * 5000 + b"]" * 5000 + b"}", b'{"os": "\xff"}'])
async def test_a_configuration_that_cannot_be_read_is_refused(tmp_path: Path, described: bytes) -> None:
    source = ImageSource([[File("a")]], described=described)
    with serving() as registry, pytest.raises(ImagePullError, match="cannot be read"):
        await Images(tmp_path / "images").ensure(registry.put("app", "1", source), silent)


def sparse_archive(size: int) -> bytes:
    """A file of that size that is one hole, as GNU tar packs it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo("GNUSparseFile.0/hole")
        info.pax_headers = {
            "GNU.sparse.major": "1",
            "GNU.sparse.minor": "0",
            "GNU.sparse.name": "hole",
            "GNU.sparse.realsize": str(size),
        }
        content = f"1\n{size}\n0\n".encode().ljust(512, b"\0")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


async def test_an_image_has_no_more_files_and_bytes_than_it_may(tmp_path: Path) -> None:
    settings = PullSettings(most_bytes=1 << 20, most_entries=1000)
    deep = [File(f"{number}/" + "d/" * 500 + "f") for number in range(3)]
    for layer in (sparse_archive(1 << 50), sparse_archive(1 << 62), deep):
        with serving() as registry, pytest.raises(ImagePullError, match="more than the 10"):
            reference = registry.put("app", "1", ImageSource([sparse_archive(1000), layer]))
            await Images(tmp_path / "images", settings, stacking_here()).ensure(reference, silent)


async def test_a_user_that_there_is_not_here_is_named(tmp_path: Path) -> None:
    if is_host_root():
        image = await pulled(tmp_path, [File("a", uid=4_000_000_000)])
        assert (image.lowers[0] / "a").lstat().st_uid == 4_000_000_000
        return
    with pytest.raises(UnsupportedError, match='"a" belongs to user 4000000000.*0 to 65535'):
        await pulled(tmp_path, [File("a", uid=4_000_000_000)])


async def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    for rubbish in (b"\x1f\x8b rubbish", b"\x28\xb5\x2f\xfd rubbish", b"rubbish" * 200):
        with serving() as registry:
            reference = registry.put("app", "1", ImageSource([rubbish], how=("plain",)))
            with pytest.raises(ImagePullError):
                await Images(tmp_path / "images").ensure(reference, silent)
