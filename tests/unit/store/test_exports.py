"""A store as a stream: read as it was written, and taken from strangers only within bounds."""

from __future__ import annotations

import io
import os
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.store.stores import get, noise, put

from atoll.errors import AtollError, DamagedError, InvalidSpecError
from atoll.store import ExportObjects, StoreKey, begin_export, read_export

MOST = 1 << 30
DATA = noise(1, 5000)


def exported(data: bytes = DATA) -> bytes:
    stream = io.BytesIO()
    store = begin_export(stream, {"what": "snapshot a"})
    put(store, "a", data)
    assert isinstance(store.objects, ExportObjects)
    store.objects.close()
    return stream.getvalue()


def test_what_was_exported_is_read_again(tmp_path: Path) -> None:
    store, head = read_export(io.BytesIO(exported()), tmp_path, MOST)
    assert head.facts == {"what": "snapshot a"}
    assert get(store, "a") == DATA
    store.close()


def test_it_goes_through_a_pipe(tmp_path: Path) -> None:
    data = exported()
    reading, writing = os.pipe()

    def write() -> None:
        with open(writing, "wb") as stream:
            stream.write(data)

    thread = threading.Thread(target=write)
    thread.start()
    with open(reading, "rb", buffering=0) as stream:
        store, _ = read_export(stream, tmp_path, MOST)
    thread.join()
    assert get(store, "a") == DATA
    store.close()


def test_it_is_a_tar_archive_without_a_word_of_the_content() -> None:
    data = exported(b"a secret text " * 1000)
    assert b"secret text" not in data
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        assert tar.getnames()[0] == "atoll-export.json"
        assert tar.getnames()[-1] == "atoll-export-end.json"


@pytest.mark.parametrize("left", [0, 100, 511, 512, 5000, -1025, -2000])
def test_an_export_that_was_cut_is_refused(left: int, tmp_path: Path) -> None:
    data = exported(noise(1, 10))
    with pytest.raises((DamagedError, InvalidSpecError)):
        read_export(io.BytesIO(data[: left % len(data)]), tmp_path, MOST)


def entries_of(data: bytes) -> list[tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        found = []
        for entry in tar:
            file = tar.extractfile(entry)
            assert file is not None
            found.append((entry, file.read()))
        return found


def written(entries: list[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    data = b""
    for entry, content in entries:
        entry.size = len(content)
        data += entry.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % 512)
    return data + bytes(1024)


Entries = list[tuple[tarfile.TarInfo, bytes]]


def renamed(entries: Entries, name: str) -> None:
    entries[1][0].name = name.replace("DOMAIN", entries[1][0].name.partition("/")[0])


def retyped(entries: Entries, kind: bytes) -> None:
    entries[1][0].type = kind
    entries[1][0].linkname = "/etc/passwd"


@pytest.mark.parametrize(
    "change",
    [
        lambda entries: renamed(entries, "../../etc/cron.d/x"),
        lambda entries: renamed(entries, "DOMAIN/packs/../../../x"),
        lambda entries: renamed(entries, "DOMAIN/packs//x"),
        lambda entries: renamed(entries, "/DOMAIN/packs/x"),
        lambda entries: renamed(entries, "DOMAIN/other/x"),
        lambda entries: renamed(entries, "other/packs/x"),
        lambda entries: renamed(entries, "DOMAIN/packs/.new-x"),
        lambda entries: retyped(entries, tarfile.SYMTYPE),
        lambda entries: retyped(entries, tarfile.LNKTYPE),
        lambda entries: retyped(entries, tarfile.CHRTYPE),
        lambda entries: retyped(entries, tarfile.XHDTYPE),
        lambda entries: retyped(entries, tarfile.GNUTYPE_LONGNAME),
        lambda entries: entries.pop(1),
        lambda entries: entries.pop(0),
        lambda entries: entries.pop(),
        lambda entries: entries.insert(1, entries[0]),
    ],
    ids=[
        *("up", "up-in-packs", "empty", "root", "other-part", "other-owner", "hidden"),
        *("symlink", "hard-link", "device", "extension", "long-name"),
        *("one-less", "no-head", "no-end", "two-heads"),
    ],
)
def test_entries_that_no_export_has_are_refused(change: Callable[[Entries], object], tmp_path: Path) -> None:
    entries = entries_of(exported(noise(1, 10)))
    change(entries)
    (tmp_path / "into").mkdir()
    with pytest.raises((DamagedError, InvalidSpecError)):
        read_export(io.BytesIO(written(entries)), tmp_path / "into", MOST)
    assert [each.name for each in tmp_path.iterdir()] == ["into"]
    assert not any(each.is_symlink() for each in tmp_path.rglob("*"))


def test_what_is_bigger_than_allowed_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpecError, match="bigger"):
        read_export(io.BytesIO(exported()), tmp_path, 1 << 20)
    entries = entries_of(exported(noise(1, 10)))
    huge = tarfile.TarInfo(entries[1][0].name)
    huge.size = 7 << 30
    head = written(entries[:1])[:-1024]
    with pytest.raises(InvalidSpecError, match="bigger"):
        read_export(io.BytesIO(head + huge.tobuf(tarfile.USTAR_FORMAT)), tmp_path, 1 << 40)


def test_a_key_that_does_not_fit_opens_nothing(tmp_path: Path) -> None:
    entries = entries_of(exported(noise(1, 10)))
    other = entries[0][1].replace(entries[0][1][8:80], b"")
    with pytest.raises(AtollError):
        read_export(io.BytesIO(written([(entries[0][0], other), *entries[1:]])), tmp_path, MOST)
    text = StoreKey.new().text().encode()
    at = entries[0][1].index(b"atoll-store-1-")
    other = entries[0][1][:at] + text + entries[0][1][at + len(text) :]
    with pytest.raises(DamagedError, match="no export has"):
        read_export(io.BytesIO(written([(entries[0][0], other), *entries[1:]])), tmp_path, MOST)


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_no_change_of_a_byte_does_harm(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    export = bytearray(exported(noise(1, 4)))
    for _ in range(data.draw(st.integers(1, 3))):
        export[data.draw(st.integers(0, len(export) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        store, _ = read_export(io.BytesIO(bytes(export)), tmp_path_factory.mktemp("into"), MOST)
        assert get(store, "a") == noise(1, 4)
    except AtollError:
        pass
    except AssertionError:
        assert "a" not in [record.record_id for record in store.records.list()]
