"""The image that these tests look at is built once and kept in the cache that all tests of this user share."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.homes import CACHE
from tests.integration.images.fakebuilder import FakeBuilder
from tests.joined import held, in_joined_child

from atoll.host import Holder, remove_tree
from atoll.images import Images
from atoll.types import Progress


@pytest.fixture(scope="session")
def images_holder() -> Iterator[Holder]:
    with held() as holder:
        yield holder


@pytest.fixture(scope="session")
def shared(images_holder: Holder) -> Path:
    """A directory of images that has ``base``."""
    directory = CACHE / "home" / "images"
    failure = in_joined_child(images_holder, build, {"directory": directory})
    if failure:
        pytest.fail(failure, pytrace=False)
    return directory


async def build(directory: Path) -> None:
    """Build ``base`` unless it is there or another process builds it; leave word of what was reported."""
    reports: list[Progress] = []
    await Images(directory).ensure("base", reports.append)
    if len(reports) > 1:  # the one report of a build elsewhere is that it is waited for
        (directory.parent / "progress.json").write_bytes(msgspec.json.encode(reports))


@pytest.fixture
def builder(tmp_path: Path) -> FakeBuilder:
    return FakeBuilder(tmp_path)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool:
    arguments: dict[str, Any] = {
        name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters
    }
    holder = pyfuncitem._request.getfixturevalue("images_holder")
    made = arguments.get("tmp_path")

    def end() -> None:
        # Files of the holder's users, which an ordinary user's pytest could not remove.
        for entry in made.iterdir() if made else ():
            remove_tree(entry)

    failure = in_joined_child(holder, pyfuncitem.obj, arguments, end)
    if failure:
        pytest.fail(failure, pytrace=False)
    return True
