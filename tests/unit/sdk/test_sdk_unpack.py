from __future__ import annotations

import io
import os
import shutil
import stat
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from atoll.errors import AgentError, FileDeniedError, FileError
from atoll.sdk._bytes import CHUNK_BYTES
from atoll.sdk._pack import packed, packed_entries, tree_bytes, walk
from atoll.sdk._tar import Entry, TarReader
from atoll.sdk._unpack import Limits, Unpacker


def member(name: str, content: bytes = b"", **attributes: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), 0o644
    for key, value in attributes.items():
        setattr(info, key, value)
    return info, content


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, type=kind, linkname=target)


def directory(name: str, mode: int = 0o755) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, type=tarfile.DIRTYPE, mode=mode)


def archive(*members: tuple[tarfile.TarInfo, bytes], kind: int = tarfile.PAX_FORMAT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=kind) as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    return file.getvalue()


def unpack(
    data: bytes,
    root: Path,
    *,
    step: int = 1 << 20,
    outside: bool = True,
    most: int | None = None,
    entries: int = 1_000_000,
) -> None:
    root.mkdir(exist_ok=True)
    unpacker = Unpacker(root, Limits(outside, most, entries))
    try:
        for at in range(0, len(data), step):
            unpacker.feed(data[at : at + step])
        unpacker.finish()
    finally:
        unpacker.close()


def names(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


@pytest.mark.parametrize("kind", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
@pytest.mark.parametrize("step", [1, 511, 513, 1 << 20])
def test_a_tree_arrives_as_it_was_however_its_bytes_are_cut(tmp_path: Path, kind: int, step: int) -> None:
    deep = "d/" + "x" * 120 + "/" + "ä" * 60
    data = archive(
        directory("d", 0o750),
        member("d/a", b"hello", mode=0o755, mtime=12345),
        member("empty"),
        member(deep, b"deep"),
        link("link", "d/a"),
        link("d/hard", "d/a", tarfile.LNKTYPE),
        kind=kind,
    )
    unpack(data, tmp_path / "out", step=step)
    out = tmp_path / "out"
    assert names(out) == sorted(["d", "d/a", "d/hard", "empty", "link", os.path.dirname(deep), deep])
    assert (out / "d/a").read_bytes() == b"hello"
    assert (out / deep).read_bytes() == b"deep"
    assert (out / "d/a").stat().st_mtime == 12345
    assert stat.S_IMODE((out / "d/a").stat().st_mode) == 0o755
    assert stat.S_IMODE((out / "d").stat().st_mode) == 0o750
    assert (out / "d/hard").samefile(out / "d/a")
    assert os.readlink(out / "link") == "d/a"


@pytest.mark.parametrize(
    "hostile",
    [
        [member("/etc/evil", b"x")],
        [member("../evil", b"x")],
        [member("a/../../evil", b"x")],
        [directory("a/.."), member("evil", b"x")],
        [link("out", "/"), member("out/evil", b"x")],
        [link("out", ".."), member("out/evil", b"x")],
        [directory("d"), link("d/up", "../.."), member("d/up/evil", b"x")],
        [link("out", ".."), directory("out/evil")],
        [link("out", ".."), link("out/evil", "x")],
        [link("h", "../secret", tarfile.LNKTYPE)],
        [link("h", "/etc/passwd", tarfile.LNKTYPE)],
        [link("s", "../secret"), link("h", "s", tarfile.LNKTYPE)],
        [member("f", b"x"), link("f", "../secret"), link("h", "f", tarfile.LNKTYPE)],
        [member("n" * 256, b"x")],
        [member("d/" * 300 + "f", b"x")],
        [member("", b"x")],
        [member("a\0b", b"x", type=b"z")],
    ],
)
def test_an_archive_that_reaches_out_is_refused(
    tmp_path: Path, hostile: list[tuple[tarfile.TarInfo, bytes]]
) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    with pytest.raises(AgentError):
        unpack(archive(*hostile), tmp_path / "out")
    assert not (tmp_path / "evil").exists()
    assert (tmp_path / "secret").stat().st_nlink == 1


def test_nothing_is_written_through_a_link_that_stood_there_before(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "out/f").symlink_to("../secret")
    os.link(tmp_path / "secret", tmp_path / "out/g")
    unpack(archive(member("f", b"new"), member("g", b"new")), tmp_path / "out")
    assert (tmp_path / "secret").read_bytes() == b"secret"
    assert not (tmp_path / "out/f").is_symlink()
    assert (tmp_path / "out/f").read_bytes() == (tmp_path / "out/g").read_bytes() == b"new"


def test_a_file_that_comes_after_a_link_of_its_name_replaces_it(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    unpack(archive(link("f", "../secret"), member("f", b"evil")), tmp_path / "out")
    assert (tmp_path / "secret").read_bytes() == b"secret"
    assert (tmp_path / "out/f").read_bytes() == b"evil"


def test_links_that_lead_out_are_kept_as_they_are_or_left_out(tmp_path: Path) -> None:
    data = archive(
        directory("venv/bin"),
        link("venv/bin/python", "/usr/bin/python3"),
        link("venv/bin/up", "../../../x"),
        link("venv/lib64", "lib"),
    )
    unpack(data, tmp_path / "kept")
    assert os.readlink(tmp_path / "kept/venv/bin/python") == "/usr/bin/python3"
    unpack(data, tmp_path / "left", outside=False)
    assert names(tmp_path / "left") == ["venv", "venv/bin", "venv/lib64"]


def test_devices_pipes_and_setuid_bits_are_left_out(tmp_path: Path) -> None:
    data = archive(
        member("pipe", type=tarfile.FIFOTYPE),
        member("disk", type=tarfile.BLKTYPE, devmajor=8),
        member("null", type=tarfile.CHRTYPE, devmajor=1, devminor=3),
        member("sudo", b"x", mode=0o6755),
        directory("d", 0o1777),
    )
    unpack(data, tmp_path / "out")
    assert names(tmp_path / "out") == ["d", "sudo"]
    assert (tmp_path / "out/sudo").stat().st_mode & 0o7000 == 0
    assert (tmp_path / "out/d").stat().st_mode & 0o7000 == 0


def test_more_bytes_than_allowed_are_not_written(tmp_path: Path) -> None:
    data = archive(member("a", bytes(600)), member("b", bytes(600)))
    with pytest.raises(FileError, match="max_bytes"):
        unpack(data, tmp_path / "out", most=1000)
    unpack(data, tmp_path / "all", most=1200)


def test_empty_files_are_counted(tmp_path: Path) -> None:
    data = archive(*(member(str(number)) for number in range(11)))
    with pytest.raises(FileError, match="max_entries"):
        unpack(data, tmp_path / "out", entries=10)
    assert len(names(tmp_path / "out")) == 10
    unpack(data, tmp_path / "all", entries=11)


def test_directories_that_only_a_long_name_tells_of_are_counted(tmp_path: Path) -> None:
    deep = archive(*(member(f"{number}/{'d/' * 100}f") for number in range(10)))
    with pytest.raises(FileError, match="max_entries"):
        unpack(deep, tmp_path / "out", entries=500)
    told = archive(directory("a"), directory("a/b"), directory("a/b/c"), member("a/b/c/d"))
    unpack(told, tmp_path / "told", entries=4)


def test_a_file_of_zeroes_takes_no_disk(tmp_path: Path) -> None:
    size = 64 << 20
    unpack(archive(member("holes", bytes(size) + b"end"), member("zero", bytes(size))), tmp_path / "out")
    for name, length in (("holes", size + 3), ("zero", size)):
        status = (tmp_path / "out" / name).stat()
        assert status.st_size == length
        assert status.st_blocks * 512 < 1 << 20
    assert (tmp_path / "out/holes").read_bytes()[-4:] == b"\0end"


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:700],
        lambda data: data[:512],
        lambda data: b"",
        lambda data: b"no tar at all" * 100,
        lambda data: data[:100] + b"9" * 8 + data[108:],
        lambda data: archive(member("x", b"0" * (1 << 20), type=b"x")) + data,
    ],
)
def test_a_damaged_archive_is_an_error(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    with pytest.raises(AgentError):
        unpack(damage(archive(member("a", b"hello"))), tmp_path / "out")


def test_small_files_are_packed_into_few_pieces(tmp_path: Path) -> None:
    for number in range(200):
        (tmp_path / f"file{number}").write_bytes(b"x" * 1000)
    pieces = [piece for piece, _ in packed(tmp_path)]
    assert len(pieces) <= sum(map(len, pieces)) / CHUNK_BYTES + 1


def test_a_packed_directory_unpacks_to_the_same(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "d/e").mkdir(parents=True)
    (source / "d/e/big").write_bytes(bytes(range(256)) * 1000)
    (source / "d/run").write_bytes(b"#!/bin/sh\n")
    (source / "d/run").chmod(0o755)
    (source / os.fsdecode(b"bad-\xff-name")).write_bytes(b"x")
    (source / "link").symlink_to("/nowhere")
    os.mkfifo(source / "pipe")
    pieces = list(packed(source))
    assert pieces[-1][1] == tree_bytes(source) == 256_000 + 10 + 1
    unpack(b"".join(piece for piece, _ in pieces), tmp_path / "out")
    assert [name for name in names(source) if name != "pipe"] == names(tmp_path / "out")
    assert (tmp_path / "out/d/e/big").read_bytes() == (source / "d/e/big").read_bytes()
    assert os.access(tmp_path / "out/d/run", os.X_OK)
    assert os.readlink(tmp_path / "out/link") == "/nowhere"


def extended(records: bytes) -> bytes:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, len(records)
    return info.tobuf(tarfile.USTAR_FORMAT) + records + bytes(-len(records) % 512)


def test_extended_headers_without_an_end_take_no_memory() -> None:
    reader = TarReader()
    tracemalloc.start()
    try:
        for number in range(100):
            key = b"%04d" % number
            assert not list(reader.feed(extended(b"65536 " + key + b"=" + b"v" * (65536 - 12) + b"\n")))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 << 20


def test_a_header_of_very_many_records_is_read_to_its_last() -> None:
    reader = TarReader()
    records = b"5 a=\n" * 200_000 + b"12 path=new\n"
    entry = next(reader.feed(extended(records) + archive(member("old"))))
    assert isinstance(entry, Entry)
    assert entry.name == "new"


def test_a_name_longer_than_paths_may_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="too long"):
        unpack(archive(member("/".join(["n" * 200] * 30))), tmp_path / "out")
    assert names(tmp_path / "out") == []


def test_an_archive_that_ends_with_a_reason_is_that_error(tmp_path: Path) -> None:
    told = '{"code": "denied", "message": "/etc/shadow: permission denied"}'
    info = tarfile.TarInfo("GlobalHead.0.0")
    head = info.create_pax_global_header({"ATOLL.fault": told})
    data = archive(member("a", b"hello")).rstrip(b"\0")
    data += bytes(-len(data) % 512) + head
    with pytest.raises(FileDeniedError, match="/etc/shadow: permission denied"):
        unpack(data, tmp_path / "to")


def test_what_goes_while_a_tree_is_packed_is_left_out(tmp_path: Path) -> None:
    for name in ("a", "b/c", "d/e/f", "g"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "h").symlink_to("a")
    seen = []
    for _, name, _ in walk(tmp_path):
        seen.append(name)
        if name == "a":  # everything at this level has been listed, nothing else looked at
            (tmp_path / "g").unlink()
            (tmp_path / "h").unlink()
        if name == "d":
            shutil.rmtree(tmp_path / "d")
    assert seen == ["a", "b", "d", "b/c"]
    with pytest.raises(FileNotFoundError):
        list(walk(tmp_path / "none"))


def test_a_link_that_goes_while_it_is_packed_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("a")
    (found,) = walk(tmp_path)
    (tmp_path / "link").unlink()
    assert b"".join(piece for piece, _ in packed_entries([found])) == bytes(1024)
