"""Each test here runs in a child process that has joined a holder, as the supervisor does: uid 0, mounts of its own."""

from __future__ import annotations

import asyncio
import inspect
import os
import shutil
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.snapshots.disks import Disks

from atoll.host import Holder, Home, end_holder, ensure_holder, is_host_root, join_holder, remove_tree

# Root of the host has both kinds of overlay, an ordinary user's namespace has one.
KINDS = [True, False] if is_host_root() else [False]


@pytest.fixture(scope="session")
def holder() -> Iterator[Holder]:
    path = Path(tempfile.mkdtemp(prefix="atoll-layers-"))
    home = Home(path)
    try:
        yield ensure_holder(home)
    finally:
        end_holder(home)
        shutil.rmtree(home.run, ignore_errors=True)
        shutil.rmtree(path)


@pytest.fixture(params=KINDS, ids=lambda complete: "complete" if complete else "lesser")
def complete(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def disks(complete: bool, tmp_path: Path) -> Disks:
    return Disks(tmp_path, complete)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool:
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    holder = pyfuncitem._request.getfixturevalue("holder")
    failure = _in_child(holder, pyfuncitem.obj, arguments)
    if failure:
        pytest.fail(failure, pytrace=False)
    return True


def _in_child(holder: Holder, test: object, arguments: dict[str, object]) -> str:
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # pytest's timer is a thread; the child needs none
        child = os.fork()
    if not child:
        os.close(reader)
        _be_child(holder, test, arguments, writer)
    os.close(writer)
    with open(reader, errors="replace") as told:
        failure = told.read()
    _, status = os.waitpid(child, 0)
    return failure or (f"the child ended with {status}" if status else "")


def _be_child(holder: Holder, test: object, arguments: dict[str, object], writer: int) -> None:
    status = 1
    disks = next((value for value in arguments.values() if isinstance(value, Disks)), None)
    try:
        join_holder(holder)
        try:
            assert callable(test)
            result = test(**arguments)
            if inspect.isawaitable(result):
                asyncio.run(_awaited(result))
        finally:
            if disks:
                disks.close()
                remove_tree(disks.path)
        status = 0
    except BaseException:
        os.write(writer, traceback.format_exc().encode())
    finally:
        os._exit(status)


async def _awaited(result: object) -> None:
    assert inspect.isawaitable(result)
    await result
