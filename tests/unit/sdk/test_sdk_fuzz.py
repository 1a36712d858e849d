"""Whatever bytes a guest sends, what reads them gives values or an error of ours, and nothing else."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atoll.errors import AtollError
from atoll.guest import HttpClient, health
from atoll.sdk._tar import TarReader
from atoll.sdk._unpack import Limits, Unpacker

FUZZ = settings(
    deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None, max_examples=60
)
NAMES = st.one_of(
    st.sampled_from(
        ["a", "b", "a/b", "../x", "/etc/x", ".", "..", "a/..", "", "a//b", "\n\x1b[2J", "x" * 300]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
)
KINDS = st.sampled_from(
    [b"0", b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"x", b"g", b"L", b"K", b"S", b"\0", b"z"]
)
CUTS = st.integers(1, 1500)


@st.composite
def members(draw: st.DrawFn) -> tuple[tarfile.TarInfo, bytes]:
    content = draw(st.binary(max_size=700))
    info = tarfile.TarInfo(draw(NAMES))
    info.type = draw(KINDS)
    info.size = draw(st.one_of(st.just(len(content)), st.integers(0, 1 << 33)))
    info.mode = draw(st.integers(0, 0o7777))
    info.mtime = draw(st.one_of(st.integers(0, 1 << 33), st.floats(allow_nan=False, allow_infinity=False)))
    info.linkname = draw(NAMES)
    return info, content


@st.composite
def archives(draw: st.DrawFn) -> bytes:
    rows = io.BytesIO()
    for info, content in draw(st.lists(members(), max_size=6)):
        kind: Any = draw(st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT]))
        with contextlib.suppress(ValueError, UnicodeError, OverflowError):  # the format has no such header
            rows.write(info.tobuf(kind))
            rows.write(content + bytes(-len(content) % 512))
    data = bytearray(rows.getvalue() + bytes(1024))
    for at, byte in draw(st.lists(st.tuples(st.integers(0, 1 << 14), st.integers(0, 255)), max_size=4)):
        if at < len(data):
            data[at] = byte
    return bytes(data)


@FUZZ
@given(data=st.one_of(archives(), st.binary(max_size=3000)), cut=CUTS)
def test_the_reader_of_archives_takes_any_bytes(data: bytes, cut: int) -> None:
    reader = TarReader()
    with contextlib.suppress(AtollError):
        for at in range(0, len(data), cut):
            for _ in reader.feed(data[at : at + cut]):
                pass


@FUZZ
@given(data=archives(), cut=CUTS, outside=st.booleans())
def test_an_unpacked_archive_stays_in_its_directory(data: bytes, cut: int, outside: bool) -> None:
    top = Path(tempfile.mkdtemp(prefix="atoll-fuzz-"))
    try:
        (top / "secret").write_bytes(b"secret")
        (top / "out").mkdir()
        unpacker = Unpacker(top / "out", Limits(outside, max_bytes=100_000, max_entries=20))
        try:
            with contextlib.suppress(AtollError, OSError):
                for at in range(0, len(data), cut):
                    unpacker.feed(data[at : at + cut])
                unpacker.finish()
        finally:
            unpacker.close()
        assert sorted(os.listdir(top)) == ["out", "secret"]
        assert (top / "secret").read_bytes() == b"secret"
        assert (top / "secret").stat().st_nlink == 1
        for path in (top / "out").rglob("*"):
            status = path.lstat()
            assert path.is_symlink() or path.is_dir() or path.is_file()
            assert path.is_symlink() or status.st_mode & 0o7000 == 0
    finally:
        shutil.rmtree(top)


@FUZZ
@given(
    data=st.one_of(
        st.binary(max_size=500),
        st.lists(
            st.sampled_from(
                [
                    b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 999 \xff\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"\r\n",
                    b"content-length: 3\r\n", b"content-length: 99999999999999999999\r\n",
                    b"transfer-encoding: chunked\r\n", b"transfer-encoding: gzip\r\n", b"connection: close\r\n",
                    b"a: \x1b[2J\r\n", b"3\r\nabc\r\n", b"0\r\n\r\n", b"ffffffffffffffff\r\n",
                    b" folded\r\n", b"\xff: \xfe\r\n",
                ]
            ),
            max_size=12,
        ).map(b"".join),
    ),
    cut=CUTS,
)  # fmt: skip
def test_the_http_client_takes_any_answer(data: bytes, cut: int) -> None:
    http = HttpClient()
    http.request(health())
    with contextlib.suppress(AtollError, ConnectionResetError):
        for at in range(0, len(data), cut):
            http.receive(data[at : at + cut])
            while http.next_event() is not None:
                if http.reusable:
                    return
        http.receive(b"")
        while http.next_event() is not None:
            if http.reusable:
                return
