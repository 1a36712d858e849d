"""Each asynchronous test here runs in a child process, as root of a testbed."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from tests.integration.network.testbed import NetworkTestbed, run


@pytest.fixture
def testbed(tmp_path: Path) -> NetworkTestbed:
    return NetworkTestbed(tmp_path)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    failure = run(pyfuncitem.obj, arguments)
    if failure:
        pytest.fail(failure, pytrace=False)
    return True
