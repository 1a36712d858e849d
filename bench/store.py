"""The store: what storing and reading memory costs a core, and what a changed state adds."""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from atoll.store import Content, DirectoryObjects, Record, Store, StoreKey, stored_bytes
from bench.measure import Number

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MIB = 1 << 20
PAGE = 4096
MEMORY_MIB = 200
BIG_MIB = 1024
CHANGED_PAGES = 10 * MIB // PAGE


def numbers() -> list[Number]:
    """Measure. Times are of the processor, because disks of these machines are shared."""
    with tempfile.TemporaryDirectory(prefix="bench-store-") as name:
        memory = Path(name) / "memory"
        _fill(memory, MEMORY_MIB)
        compress_ms = _processor_ms(lambda: _compress(memory, Path(name) / "compressed"))
        store = _store(Path(name) / "one")
        contents: list[Content] = []
        store_ms = _processor_ms(lambda: contents.append(_keep(store, memory)))
        read_ms = _processor_ms(lambda: _read(store, contents[0], Path(name) / "back"))
        store.close()
    with tempfile.TemporaryDirectory(prefix="bench-store-") as name:
        added_mb = _added_mb(Path(name))
    return [
        Number(
            name="200 MiB of memory are stored, of one core",
            measured=store_ms,
            promise=1000,
            reference_name="zstd -1 in frames of 64 KiB",
            reference=compress_ms,
        ),
        Number(name="200 MiB of memory are read from a store, of one core", measured=read_ms, promise=1000),
        Number(
            name="a state of 1 GiB of which 10 MiB changed adds to a store",
            measured=added_mb,
            promise=15,
            unit="MB",
        ),
    ]


def _store(directory: Path) -> Store:
    return Store(
        objects=DirectoryObjects(directory / "objects"),
        key=StoreKey.new(),
        catalog_path=directory / "catalog.db",
    )


def _fill(path: Path, size_mib: int) -> None:
    """Write what memory is like: a fifth of zeros, and pages that halve when they are compressed."""
    chance = random.Random(1)
    with open(path, "wb") as file:
        for _ in range(size_mib):
            pages = (
                bytes(PAGE) if chance.random() < 0.2 else chance.randbytes(PAGE // 2) + bytes(PAGE // 2)
                for _ in range(MIB // PAGE)
            )
            file.write(b"".join(pages))


def _processor_ms(action: Callable[[], object]) -> float:
    began_s = time.process_time()
    action()
    return (time.process_time() - began_s) * 1000


def _compress(source: Path, target: Path) -> None:
    with open(source, "rb") as file, open(target, "wb") as out:
        while data := file.read(64 << 10):
            out.write(zstd.compress(data, 1))
        out.flush()
        os.fsync(out.fileno())


def _keep(store: Store, memory: Path) -> Content:
    before = store.records.find("sandbox", "work")
    with open(memory, "rb") as file, store.writing() as writing:
        content = writing.writer.write_file(file.fileno(), memory.stat().st_size, pages=True)
        record = Record(kind="sandbox", record_id="work", changed_at=time.time())
        writing.commit(record, {"memory": content}, before)
    return content


def _read(store: Store, content: Content, target: Path) -> None:
    with open(target, "wb") as file, store.reading() as reader:
        reader.write_file(content, file.fileno())


def _added_mb(directory: Path) -> float:
    """Store memory, change some pages and put one more in front of them, and store it again."""
    memory = directory / "memory"
    _fill(memory, BIG_MIB)
    store = _store(directory)
    _keep(store, memory)
    before = stored_bytes(store)
    chance = random.Random(2)
    with open(memory, "r+b") as file:
        data = file.read(BIG_MIB // 2 * MIB)
        file.seek(0)
        file.write(chance.randbytes(PAGE) + data)
        for _ in range(CHANGED_PAGES):
            file.seek(chance.randrange(BIG_MIB * MIB // PAGE) * PAGE)
            file.write(chance.randbytes(PAGE))
    _keep(store, memory)
    added = stored_bytes(store) - before
    store.close()
    return added / 1e6
