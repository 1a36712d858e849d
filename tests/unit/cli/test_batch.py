"""Commands that take several names, or look at several sandboxes: one that fails ends nothing for the others."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.sdk.fakes import SANDBOX_ID, FakeSupervisor, Handler, info

from atoll.cli.__main__ import run

GONE_ID = "gone567890gone567890"
GROUPS = {
    "image delete": "images",
    "snapshot delete": "snapshots",
    "team delete": "teams",
    "template delete": "templates",
    "volume delete": "volumes",
    "kill": "sandboxes",
}


@pytest.fixture
def supervisor(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSupervisor]:
    with tempfile.TemporaryDirectory(prefix="atoll-", dir="/tmp") as directory:
        monkeypatch.setenv("ATOLL_HOME", f"{directory}/home")
        with FakeSupervisor(Path(directory) / "home") as fake:
            yield fake


def stats() -> dict[str, object]:
    whole = dict.fromkeys(
        ("memory_bytes", "memory_limit_bytes", "disk_bytes", "processes", "received_bytes", "sent_bytes"), 1
    )
    return {"state": "running", "cpu_s": 1.0, **whole}


@pytest.mark.parametrize("command", GROUPS)
def test_each_name_is_taken_and_all_that_failed_are_told(
    supervisor: FakeSupervisor, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    path = f"/v1/{GROUPS[command]}"
    for name in ("one", "three"):
        supervisor.api.routes["DELETE", f"{path}/{name}"] = Handler.send_nothing
        supervisor.api.routes["GET", f"{path}/{name}"] = info(sandbox_id=name)
    assert run([*command.split(), "one", "typo", "three", "slip"]) == 125
    ended = [asked.partition("?")[0] for method, asked in supervisor.api.requests if method == "DELETE"]
    assert [asked for asked in ended if asked.endswith(("/one", "/three"))] == [
        f"{path}/one",
        f"{path}/three",
    ]
    told = capsys.readouterr()
    assert all(name in line for name, line in zip(("typo", "slip"), told.err.splitlines(), strict=True))
    assert told.out == "done for the others: one, three\n"
    assert run([*command.split(), "one", "three"]) == 0
    assert capsys.readouterr().out == ""
    assert run([*command.split(), "typo"]) == 125
    assert capsys.readouterr().out == ""
    assert run([*command.split(), "typo", "one", "--json"]) == 125
    told = capsys.readouterr()
    assert "one" in json.dumps(json.loads(told.out)) and "typo" not in told.out
    assert json.loads(told.err)["error"]["code"] == "not_found"


def test_the_statistics_of_all_leave_out_who_was_killed_meanwhile(
    supervisor: FakeSupervisor, capsys: pytest.CaptureFixture[str]
) -> None:
    there = [info(), info(sandbox_id=GONE_ID, name="gone")]
    gone = {"code": "sandbox_not_found", "message": "sandbox 'gone' not found"}
    supervisor.api.routes["GET", "/v1/sandboxes"] = {"sandboxes": there}
    supervisor.api.routes["GET", "/v1/sandboxes/alice"] = info()
    supervisor.api.routes["GET", f"/v1/sandboxes/{SANDBOX_ID}/stats"] = stats()
    supervisor.api.routes["GET", "/v1/sandboxes/gone"] = lambda handler: handler.send_json(gone, 404)
    assert run(["stats", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["alice"]
    assert run(["stats", "gone"]) == 125
