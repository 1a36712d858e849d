from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from atoll.network import Counts
from atoll.network import counts as counts_module
from atoll.network.spending import Spent
from atoll.types import Policy, RateLimit, Rule

RULE = Rule(hosts=("mail.example.com",), limit=RateLimit(total_bytes=1000))
POLICY = Policy(rules=(RULE,))
PATIENCE_S = 10.0


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "s1").mkdir()
    return tmp_path


def counts_in(directory: Path) -> Counts:
    return Counts(lambda sandbox_id: directory / sandbox_id / "limits.json")


def told(key: str, total_bytes: int) -> list[Spent]:
    return [Spent(key=key, total_bytes=total_bytes, requests=[])]


def key_in(counts: Counts) -> str:
    (document,) = counts.keep("s1", POLICY).document()
    return str(document["key"])


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.05)


def test_what_was_counted_outlives_the_supervisor(directory: Path) -> None:
    async def first() -> str:
        counts = counts_in(directory)
        key = key_in(counts)
        counts.add("s1", told(key, 700))
        await until(lambda: (directory / "s1" / "limits.json").exists())
        counts.add("s1", told(key, 800))
        await counts.aclose()
        return key

    async def second(key: str) -> None:
        # No policy has been told of yet. What an edge has counted meanwhile is added all the same.
        counts = counts_in(directory)
        counts.add("s1", told(key, 900))
        await counts.aclose()

    asyncio.run(second(asyncio.run(first())))
    third = counts_in(directory)
    (document,) = third.keep("s1", Policy(rules=(Rule(hosts=("free.example.com",)), RULE))).document()
    assert (document["rule"], document["total_bytes"]) == (1, 900)
    third.erase("s1")
    assert list((directory / "s1").iterdir()) == []


def test_a_sandbox_that_is_gone_leaves_nothing(directory: Path) -> None:
    async def work() -> None:
        counts = counts_in(directory)
        counts.add("gone", told("any", 5))
        counts.keep("goes", Policy(rules=(RULE,)))
        counts.add("goes", told("any", 5))
        await counts.aclose()

    asyncio.run(work())
    assert [each.name for each in directory.iterdir()] == ["s1"]


def test_a_file_that_cannot_be_read_counts_from_zero(directory: Path) -> None:
    (directory / "s1" / "limits.json").write_text("[")
    (document,) = counts_in(directory).keep("s1", POLICY).document()
    assert document["total_bytes"] == 0


def test_what_cannot_be_written_is_written_later(
    directory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[Path] = []

    def fail_twice(path: Path, data: bytes) -> None:
        tries.append(path)
        if len(tries) < 3:
            raise OSError("no space left on device")
        path.write_bytes(data)

    async def work() -> None:
        counts = counts_in(directory)
        counts.add("s1", told(key_in(counts), 700))
        await until(lambda: (directory / "s1" / "limits.json").exists())
        await counts.aclose()

    monkeypatch.setattr(counts_module, "_WRITE_S", 0.01)
    monkeypatch.setattr(counts_module, "write_atomically", fail_twice)
    asyncio.run(work())
    assert len(tries) == 3
    assert [record.getMessage() for record in caplog.records] == [
        "what limits have counted cannot be written, and is tried again: no space left on device"
    ]
