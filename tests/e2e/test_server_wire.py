"""The API of `atoll serve` as it is on the wire: older clients, other teams, and requests that no client sends."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest
from tests.e2e.server import Server

from atoll import Keys, Quotas, Teams

WAIT_S = 60.0
NOBODY = "a" * 20


@pytest.fixture(scope="module")
def api(server: Server) -> Iterator[httpx.Client]:
    """A client of the server's own team."""
    with httpx.Client(base_url=server.url, headers={"X-API-Key": server.key}, timeout=WAIT_S) as client:
        yield client


@pytest.fixture(scope="module")
def others(server: Server) -> Iterator[httpx.Client]:
    """A client of another team."""
    Teams.create("others")
    key = Keys.create("others", "test").key
    with httpx.Client(base_url=server.url, headers={"X-API-Key": key}, timeout=WAIT_S) as client:
        yield client


@pytest.fixture(scope="module")
def sandbox(api: httpx.Client) -> Iterator[str]:
    made = api.post("/sandboxes", json={"templateID": "base", "timeout": 3000, "secure": True})
    assert made.status_code == 201
    yield made.json()["sandboxID"]
    assert api.delete(f"/sandboxes/{made.json()['sandboxID']}").status_code == 204


def killed(api: httpx.Client, answer: httpx.Response) -> dict[str, object]:
    """What a request has made, which is killed at once."""
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert api.delete(f"/sandboxes/{made['sandboxID']}").status_code == 204
    return dict(made)


def test_what_an_old_client_creates_is_secured_only_if_it_asks_for_that_or_says_nothing(
    api: httpx.Client,
) -> None:
    usual = killed(api, api.post("/sandboxes", json={"templateID": "base"}))
    assert {"templateID", "sandboxID", "clientID", "envdVersion", "envdAccessToken"} <= usual.keys()
    assert usual["trafficAccessToken"] is None
    body = {"templateID": "base", "secure": False}
    assert "envdAccessToken" not in killed(api, api.post("/sandboxes", json=body))
    assert "envdAccessToken" in killed(api, api.post("/v2/sandboxes", json=body))
    refused = api.post("/sandboxes", json={**body, "network": {"allowPublicTraffic": False}})
    assert refused.status_code == 400
    assert "secure envd access" in refused.json()["message"]


def test_a_sandbox_that_is_not_public_has_a_token_for_its_ports(api: httpx.Client) -> None:
    body = {"templateID": "base", "network": {"allowPublicTraffic": False, "maskRequestHost": "x:${PORT}"}}
    assert killed(api, api.post("/v2/sandboxes", json=body))["trafficAccessToken"]


def test_connecting_has_a_status_of_its_own_for_a_sandbox_that_slept(api: httpx.Client, sandbox: str) -> None:
    one = f"/sandboxes/{sandbox}"
    assert api.post(f"{one}/connect", json={}).status_code == 400
    running = api.post(f"{one}/connect", json={"timeout": 60})
    assert (running.status_code, running.json()["sandboxID"]) == (200, sandbox)
    assert api.post(f"{one}/resume", json={}).status_code == 409
    assert api.post(f"{one}/pause", json={"memory": True}).status_code == 204
    ended = api.get(one).json()["endAt"]
    snapshot = api.post(f"{one}/snapshots", json={}).json()
    assert api.get(one).json()["endAt"] == ended
    assert api.delete(f"/templates/{snapshot['snapshotID']}").status_code == 204
    again = api.post(f"{one}/pause")
    message = f"Error pausing sandbox - sandbox '{sandbox}' is already paused"
    assert (again.status_code, again.json()) == (409, {"code": 409, "message": message})
    assert api.get(one).json()["pauseMode"] == "full"
    woken = api.post(f"/v2{one}/connect")
    assert (woken.status_code, woken.json()["envdAccessToken"]) == (201, running.json()["envdAccessToken"])
    api.post(f"{one}/pause", json={"memory": False})
    assert api.get(one).json()["pauseMode"] == "filesystem"
    assert api.post(f"{one}/resume", json={"timeout": 3000}).status_code == 201


def test_forks_are_counted_before_they_are_made(api: httpx.Client, sandbox: str) -> None:
    told = [
        api.post(f"/sandboxes/{sandbox}/fork", json={"count": count}).json()["message"] for count in (0, 101)
    ]
    assert told == ["Count must be at least 1", "Count cannot be greater than 100"]


def test_a_list_says_how_many_run_and_where_it_goes_on(api: httpx.Client, sandbox: str) -> None:
    page = api.get("/v2/sandboxes", params={"limit": 1, "state": "running"})
    assert page.headers["X-Total-Running"] == "1"
    assert "X-Next-Token" not in page.headers
    assert [one["sandboxID"] for one in page.json()] == [sandbox]
    assert [one["sandboxID"] for one in api.get("/sandboxes").json()] == [sandbox]


def test_a_lease_is_refreshed_and_never_made_shorter(api: httpx.Client, sandbox: str) -> None:
    end = api.get(f"/sandboxes/{sandbox}").json()["endAt"]
    assert api.post(f"/sandboxes/{sandbox}/refreshes", json={"duration": 10}).status_code == 204
    assert api.get(f"/sandboxes/{sandbox}").json()["endAt"] == end
    assert api.post(f"/sandboxes/{sandbox}/refreshes", json={"duration": 3601}).status_code == 400


def test_logs_tell_what_befell_a_sandbox(api: httpx.Client, sandbox: str) -> None:
    old = api.get(f"/sandboxes/{sandbox}/logs", params={"limit": 1}).json()
    assert old["logs"][0]["line"] == "created from image base"
    assert old["logEntries"][0]["level"] == "info"
    new = api.get(f"/v2/sandboxes/{sandbox}/logs", params={"search": "created from"}).json()
    assert [entry["message"] for entry in new["logs"]] == ["created from image base"]
    assert api.get(f"/v2/sandboxes/{sandbox}/logs", params={"direction": "up"}).status_code == 400


def test_the_newest_metrics_of_several_sandboxes_leave_out_what_is_not_the_teams(
    api: httpx.Client, others: httpx.Client, sandbox: str
) -> None:
    path = f"/sandboxes/metrics?sandbox_ids={sandbox},{NOBODY}"
    assert set(api.get(path).json()["sandboxes"]) <= {sandbox}
    assert others.get(path).json() == {"sandboxes": {}}
    assert api.get("/sandboxes/metrics").status_code == 400


def test_to_another_team_a_sandbox_is_one_that_never_was(
    others: httpx.Client, sandbox: str, api: httpx.Client
) -> None:
    requests: list[tuple[str, str, object]] = [
        ("GET", "/sandboxes/ID", None),
        ("DELETE", "/sandboxes/ID", None),
        ("POST", "/sandboxes/ID/connect", {"timeout": 5}),
        ("POST", "/v2/sandboxes/ID/connect", {}),
        ("POST", "/sandboxes/ID/resume", {}),
        ("POST", "/sandboxes/ID/pause", {}),
        ("POST", "/sandboxes/ID/timeout", {"timeout": 0}),
        ("POST", "/sandboxes/ID/refreshes", {}),
        ("PUT", "/sandboxes/ID/network", {"allow_internet_access": False}),
        ("POST", "/sandboxes/ID/fork", {}),
        ("POST", "/sandboxes/ID/snapshots", {"name": "stolen"}),
        ("GET", "/sandboxes/ID/metrics", None),
        ("GET", "/sandboxes/ID/logs", None),
        ("GET", "/v2/sandboxes/ID/logs", None),
    ]
    api.get(f"/sandboxes/{sandbox}")  # the server has heard of it
    for method, path, body in requests:
        told = []
        for sandbox_id in (sandbox, NOBODY):
            answer = others.request(method, path.replace("ID", sandbox_id), json=body)
            told.append((answer.status_code, answer.text.replace(sandbox_id, "ID")))
        message = "Sandbox \\\"ID\\\" doesn't exist or you don't have access to it"
        assert told == [(404, f'{{"code":404,"message":"{message}"}}')] * 2, (method, path)
    assert others.get("/v2/sandboxes").json() == []
    assert others.get("/snapshots", params={"sandboxID": sandbox}).json() == []
    assert api.get(f"/sandboxes/{sandbox}").json()["state"] == "running"


def test_a_full_quota_is_told_and_not_asked_again(server: Server, api: httpx.Client) -> None:
    Teams.create("small", Quotas(running=2, ttl_s=7200.0))
    headers = {"X-API-Key": Keys.create("small", "test").key}
    body = {"templateID": "base", "timeout": 600}
    late = api.post("/v2/sandboxes", json={**body, "timeout": 7201}, headers=headers)
    assert (late.status_code, late.json()["message"]) == (400, "Timeout cannot be greater than 2 hours")
    made = [api.post("/v2/sandboxes", json=body, headers=headers) for _ in range(3)]
    try:
        assert [answer.status_code for answer in made] == [201, 201, 429]
        assert made[2].headers["Should-Retry"] == "false"
        first = f"/sandboxes/{made[0].json()['sandboxID']}"
        forked = api.post(f"{first}/fork", json={}, headers=headers)
        assert forked.status_code == 201
        assert [fork["error"]["code"] for fork in forked.json()] == [429]
        many = api.post(f"{first}/fork", json={"count": 2}, headers=headers).json()
        assert "maximum number of concurrent sandboxes (2)" in many["message"]
    finally:
        for answer in made:
            if answer.status_code == 201:
                api.delete(f"/sandboxes/{answer.json()['sandboxID']}", headers=headers)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "body"),
        (b"[]", "body"),
        (b'{"timeout": 5}', "templateID"),
        (b'{"templateID": "base", "timeout": NaN}', "body"),
        (b'{"templateID": "base", "timeout": 1e999}', "timeout"),
        (b'{"templateID": "base", "timeout": "5"}', "timeout"),
        (b'{"templateID": "base", "metadata": {"a": {"b": "c"}}}', "metadata"),
        (b'{"templateID": "base", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "body"),
        (b'{"templateID": "\xff"}', "body"),
        (b'{"templateID": "base\\u0000"}', "templateID"),
        (
            b'{"templateID": "base", "volumeMounts": [{"name": "v", "path": "/a"}, {"name": "w", "path": "/a"}]}',
            "path",
        ),
        (b'{"templateID": "base", "autoPauseMemory": false}', "autoPauseMemory=false only applies"),
    ],
)
def test_a_body_that_is_not_what_it_must_be_is_the_clients_fault(
    api: httpx.Client, body: bytes, words: str
) -> None:
    answer = api.post("/v2/sandboxes", content=body)
    assert (answer.status_code, answer.json()["code"]) == (400, 400)
    assert words in answer.json()["message"]


def test_bodies_are_bounded_however_they_come(api: httpx.Client, sandbox: str) -> None:
    def pieces(count: int) -> Iterator[bytes]:
        yield b'{"timeout": 3000, "x": "'
        yield from (b"y" * 65_536 for _ in range(count))
        yield b'"}'

    path = f"/sandboxes/{sandbox}/timeout"
    assert api.post(path, content=pieces(2)).status_code == 204
    assert api.post(path, content=pieces(64)).status_code == 413
    assert api.request("DELETE", f"/sandboxes/{NOBODY}", content=b'{"unused": 1}').status_code == 404


def test_an_answer_before_the_end_of_a_body_says_that_its_connection_ends(server: Server) -> None:
    address = urlsplit(server.url).netloc
    with httpx.Client(base_url=server.url, timeout=WAIT_S) as stranger:
        for _ in range(20):
            for path in (f"/uploads/{'0' * 64}", "/v2/sandboxes"):
                refused = stranger.put(path, content=bytes(200_000))
                assert (refused.status_code >= 400, refused.headers["connection"]) == (True, "close")
                assert stranger.get("/health").status_code == 200
            # Head and body at once: a body that comes later may find that it was answered.
            with contextlib.closing(http.client.HTTPConnection(address, timeout=WAIT_S)) as whole:
                whole.connect()
                whole.sock.sendall(
                    b"POST /v2/sandboxes HTTP/1.1\r\nHost: atoll\r\nContent-Length: 2\r\n\r\n{}"
                )
                with http.client.HTTPResponse(whole.sock, method="POST") as answer:
                    answer.begin()
                    assert answer.headers.get("connection") != "close"


@pytest.mark.parametrize("sandbox_id", ["A" * 20, "x", "%2e%2e%2fsecret", "%00", "é" * 20, "a" * 4000])
def test_what_cannot_be_an_id_is_an_id_of_nothing(api: httpx.Client, sandbox_id: str) -> None:
    answer = api.get(f"/sandboxes/{sandbox_id}")
    assert answer.status_code == 404
    assert len(answer.content) < 1000


def test_a_name_is_no_id(api: httpx.Client, sandbox: str) -> None:
    assert api.get(f"/sandboxes/{sandbox}-0123abcd").json()["sandboxID"] == sandbox, "as old clients write it"


def test_nothing_is_told_without_a_key(server: Server, sandbox: str) -> None:
    with httpx.Client(base_url=server.url, timeout=WAIT_S) as stranger:
        for path in (
            f"/sandboxes/{sandbox}",
            f"/sandboxes/{NOBODY}",
            "/v2/sandboxes",
            "/secrets",
            "/snapshots",
        ):
            for headers in ({}, {"X-API-Key": "e2b_" + "0" * 40}, {"Authorization": "Bearer wrong"}):
                answer = stranger.get(path, headers=headers)
                assert (answer.status_code, answer.json()) == (
                    401,
                    {"code": 401, "message": "Invalid API key"},
                )
        assert stranger.get("/health").status_code == 200
        assert stranger.get("/docs").status_code == 200


def test_every_route_is_described(server: Server, api: httpx.Client) -> None:
    described = api.get("/openapi.json").json()
    assert described["openapi"].startswith("3.")
    assert "templateID" in described["components"]["schemas"]["NewSandbox"]["properties"]
    assert json.dumps(described)
    for path, methods in described["paths"].items():
        for method in methods:
            answer = api.request(method, path.replace("{", "").replace("}", ""))
            assert (answer.status_code, answer.text) != (404, '{"code":404,"message":"Not Found"}'), path
            assert answer.status_code != 405, (method, path)
