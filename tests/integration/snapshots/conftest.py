"""Each test here runs in a child process that has joined a holder."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.snapshots.disks import Disks
from tests.joined import held, in_joined_child

from atoll.host import Holder, is_host_root

# Root of the host has both kinds of overlay, an ordinary user's namespace has one.
KINDS = [True, False] if is_host_root() else [False]


@pytest.fixture(scope="session")
def layers_holder() -> Iterator[Holder]:
    with held() as holder:
        yield holder


@pytest.fixture(params=KINDS, ids=lambda complete: "complete" if complete else "lesser")
def complete(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def disks(complete: bool, tmp_path: Path, layers_holder: Holder) -> Disks:
    return Disks(tmp_path, complete, layers_holder)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool:
    arguments: dict[str, Any] = {
        name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters
    }
    disks = arguments["disks"]
    failure = in_joined_child(disks.holder, pyfuncitem.obj, arguments, disks.close)
    if failure:
        pytest.fail(failure, pytrace=False)
    return True
