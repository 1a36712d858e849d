"""Commands that only look at a sandbox: they do not hold it, so they are no use of it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from tests.unit.cli.test_batch import stats
from tests.unit.sdk.fakes import SANDBOX_ID, FakeSupervisor, Handler, info

from atoll.cli.__main__ import run


@pytest.fixture
def supervisor(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSupervisor]:
    with tempfile.TemporaryDirectory(prefix="atoll-", dir="/tmp") as directory:
        monkeypatch.setenv("ATOLL_HOME", f"{directory}/home")
        with FakeSupervisor(Path(directory) / "home") as fake:
            one = f"/v1/sandboxes/{SANDBOX_ID}"
            page = {"offset": 0, "end": 0}
            fake.api.routes |= {
                ("GET", "/v1/sandboxes"): {"sandboxes": [info()]},
                ("GET", "/v1/sandboxes/alice"): info(),
                ("GET", one): info(),
                ("GET", f"{one}/stats"): stats(),
                ("GET", f"{one}/logs"): {"text": "", **page},
                ("GET", f"{one}/logs?offset=0"): {"text": "", **page},
                ("GET", f"{one}/services"): [],
                ("GET", f"{one}/egress/decisions"): {"decisions": [], **page},
                ("GET", f"{one}/egress/decisions?offset=0"): {"decisions": [], **page},
                ("POST", f"{one}/egress/test"): {"action": "allow", "reason": "it is allowed"},
                ("DELETE", one): Handler.send_nothing,
            }
            yield fake


@pytest.mark.parametrize(
    ("line", "holds"),
    [
        ("ls", False),
        ("info alice", False),
        ("stats", False),
        ("stats alice", False),
        ("logs alice", False),
        ("logs alice --json", False),
        ("service ls alice", False),
        ("policy show alice", False),
        ("policy log alice", False),
        ("policy test alice GET https://example.com/", False),
        ("kill alice", True),
    ],
)
def test_a_command_that_only_looks_holds_nothing(supervisor: FakeSupervisor, line: str, holds: bool) -> None:
    with patch("atoll.sdk._sync.sandbox.Holding") as holding:
        assert run(line.split()) == 0
    assert holding.called is holds
    assert holds or all(
        method == "GET" or path.endswith("/egress/test") for method, path in supervisor.api.requests
    )
