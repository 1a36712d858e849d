"""The API's own manners: errors, lists, documentation."""

from __future__ import annotations

import json

from atoll import errors
from atoll.supervisor.api.reply import status_of
from tests.unit.supervisor.harness import Harness, with_harness


@with_harness
async def test_hello_says_who_answers(harness: Harness) -> None:
    told = (await harness.ask("GET", "/hello")).json
    assert (told["product"], told["protocol"], told["home"]) == ("atoll", 1, str(harness.home.path))


@with_harness
async def test_an_unknown_sandbox_is_404_with_a_remedy(harness: Harness) -> None:
    answer = await harness.ask("GET", "/v1/sandboxes/nope")
    assert answer.status == 404
    assert answer.json["code"] == "sandbox_not_found"
    assert answer.json["hint"]


@with_harness
async def test_an_unknown_path_is_404_in_the_same_form(harness: Harness) -> None:
    answer = await harness.ask("GET", "/v2/nope")
    assert (answer.status, answer.json["code"]) == (404, "not_found")


@with_harness
async def test_a_body_that_is_no_spec_is_refused_with_the_reason(harness: Harness) -> None:
    for body in (
        {"nmae": "x"},
        {"name": "Not A Name"},
        {"limits": {"memory_mib": 1}},
        {"env": {"a b": "c"}},
        {"limits": {"vcpus": -1}},
    ):
        answer = await harness.ask("POST", "/v1/sandboxes", body)
        assert (answer.status, answer.json["code"]) == (400, "invalid_spec"), body


@with_harness
async def test_a_fault_of_our_own_tells_no_details(harness: Harness) -> None:
    harness.host.fail_next("start", RuntimeError("secret"))
    answer = await harness.ask("POST", "/v1/sandboxes", {})
    assert (answer.status, answer.json["code"]) == (500, "internal")
    assert "secret" not in answer.body.decode()


@with_harness
async def test_a_stream_ends_with_the_error(harness: Harness) -> None:
    answer = await harness.ask("POST", "/v1/sandboxes", {"image": "nope"}, {"accept": "application/x-ndjson"})
    assert answer.status == 200
    assert json.loads(answer.body.splitlines()[-1])["error"]["code"] == "image_not_found"


@with_harness
async def test_lists_are_filtered_and_paged(harness: Harness) -> None:
    for number in range(5):
        await harness.create(metadata={"odd": str(number % 2)})
    first = (await harness.ask("GET", "/v1/sandboxes?limit=2&metadata=odd=0")).json
    rest = (await harness.ask("GET", f"/v1/sandboxes?limit=2&metadata=odd=0&cursor={first['cursor']}")).json
    assert [len(first["sandboxes"]), len(rest["sandboxes"]), rest["cursor"]] == [2, 1, None]
    assert (await harness.ask("GET", "/v1/sandboxes?state=paused,suspended")).json["sandboxes"] == []
    for wrong in ("limit=x", "limit=0", "cursor=!", "metadata=a"):
        assert (await harness.ask("GET", f"/v1/sandboxes?{wrong}")).status == 400, wrong


@with_harness
async def test_statistics_do_not_wake_a_sandbox(harness: Harness) -> None:
    made = await harness.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    running = (await harness.ask("GET", f"{one}/stats")).json
    assert (running["processes"], running["disk_bytes"]) == (3, 11)
    await harness.ask("POST", f"{one}/suspend")
    sleeping = (await harness.ask("GET", f"{one}/stats")).json
    assert (sleeping["state"], sleeping["processes"], sleeping["disk_bytes"]) == ("suspended", 0, 11)


@with_harness
async def test_logs_go_on_where_the_reader_was(harness: Harness) -> None:
    made = await harness.create()
    console = harness.home.sandboxes / made["sandbox_id"] / "console.log"
    console.write_bytes("grün ".encode())
    one = f"/v1/sandboxes/{made['sandbox_id']}/logs"
    first = (await harness.ask("GET", one)).json
    console.write_bytes("grün wie nie".encode())
    assert first == {"text": "grün ", "offset": 6, "end": 6}
    assert (await harness.ask("GET", f"{one}?offset=6")).json["text"] == "wie nie"


@with_harness
async def test_every_operation_is_described(harness: Harness) -> None:
    described = (await harness.ask("GET", "/openapi.json")).json
    paths = {(path, method) for path, operations in described["paths"].items() for method in operations}
    assert ("/v1/sandboxes/{ref}/rollback", "post") in paths
    assert "SandboxSpec" in described["components"]["schemas"]
    page = (await harness.ask("GET", "/docs")).body.decode()
    assert all(path in page for path, _ in paths)
    assert "http" not in page.replace("<!doctype html>", "")


def test_every_error_has_a_status_of_its_kind() -> None:
    assert status_of(errors.InvalidSpecError()) == 400
    assert status_of(errors.SnapshotNotFoundError()) == 404
    assert [status_of(kind()) for kind in (errors.NameTakenError, errors.InUseError, errors.StateError)] == [
        409
    ] * 3
    assert status_of(errors.SandboxCrashedError()) == 410
    assert status_of(errors.UnsupportedError()) == 501
    assert status_of(errors.DeadlineError()) == 504
    assert status_of(errors.NoSpaceError()) == 507
    assert status_of(errors.EngineError()) == status_of(ValueError()) == 500
