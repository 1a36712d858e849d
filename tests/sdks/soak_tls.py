"""All cases of the published E2B SDKs over TLS with wildcard names, which `make soak` runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.server import Server
from tests.sdks.test_clients import (
    BOTH_UNCALLED,
    NEW,
    OLD,
    run_javascript_over_tls,
    run_python_over_tls,
    uncalled,
)

pytestmark = pytest.mark.timeout(1800)


@pytest.mark.parametrize("version", [NEW, OLD])
def test_every_case_of_the_python_sdk_works(version: str, secure: Server, tmp_path: Path) -> None:
    assert uncalled(run_python_over_tls(version, secure, tmp_path)) == BOTH_UNCALLED


def test_every_case_of_the_javascript_sdk_works(secure: Server, tmp_path: Path) -> None:
    assert uncalled(run_javascript_over_tls(secure, tmp_path)) == set()
