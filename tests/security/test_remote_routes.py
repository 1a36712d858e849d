"""The remote SDK's routes: each operation of the supervisor is open with a rule or closed with a reason, and no team
reaches what is another's."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from atoll import Hosting, Keys, Policy, Quotas, Rule, Sandbox, Secrets, Snapshots, Teams, Templates, Volumes
from atoll.errors import DeniedError
from atoll.protocol import REQUEST_HEADER, DialAnswer
from atoll.sdk._bridge import Bridge
from atoll.sdk._server import Server as At
from atoll.sdk._sync.builds import request_build
from atoll.server.remote.allowed import CLOSED_TO_CLIENTS, OPERATIONS, Operation
from atoll.supervisor.api.openapi import described
from tests.e2e.server import Server

ANSWER_S = 120.0
NOTHING = "nothing0nothing0noth"
BODIES: dict[tuple[str, str], dict[str, Any]] = {
    ("POST", "/v1/sandboxes/{ref}/network"): {"network": "none"},
    ("POST", "/v1/sandboxes/{ref}/rollback"): {"snapshot": "SNAPSHOT"},
    ("POST", "/v1/sandboxes/{ref}/diff"): {"base": "SNAPSHOT"},
    ("POST", "/v1/sandboxes/{ref}/links"): {"port": 8000},
    ("POST", "/v1/sandboxes/{ref}/promote"): {"winner": "SANDBOX"},
    ("POST", "/v1/sandboxes/{ref}/services"): {"name": "web", "command": "true"},
    ("POST", "/v1/sandboxes/{ref}/lease"): {"ttl_s": 60},
    ("POST", "/v1/sandboxes/{ref}/limits"): {"limits": {}},
    ("POST", "/v1/sandboxes/{ref}/egress/test"): {"method": "GET", "url": "http://example.com/"},
    ("POST", "/v1/secrets/{ref}"): {"value": "stolen"},
    ("POST", "/v1/templates/{ref}/tag"): {"tags": ["stolen"]},
    ("POST", "/v1/templates/{ref}/untag"): {"tags": ["stolen"]},
    ("POST", "/v1/templates/{ref}/publish"): {"public": True},
    ("POST", "/v1/builds/{id}/finish"): {"state": "cancelled"},
    ("POST", "/v1/builds/{id}/run"): {"spec": {}, "timeout_s": 60},
}
ODD = ["..", "%2e%2e", "%2e%2e%2fstop", "a%2fb", "%00", "a%0d%0ab:c", "%ff%fe", "*", "x" * 3000, "%25%32%65"]


@dataclass(frozen=True)
class Reef:
    """What a team has, by id and by name, and the key of another team."""

    sandbox: Sandbox
    things: dict[str, str]
    names: dict[str, str]
    key: str
    own_key: str


MISSING = dict.fromkeys(("sandbox", "snapshot", "volume", "secret", "template", "build"), NOTHING)
LINKS = Operation("POST", "/v1/sandboxes/{ref}/links", ())
RUN = Operation("POST", "/v1/builds/{id}/run", ())
UPLOADS = tuple(Operation(method, f"/v1/uploads/{'0' * 64}", ()) for method in ("GET", "PUT"))


@pytest.fixture(scope="module")
def reef(server: Server) -> Iterator[Reef]:
    del server
    for team in ("reef", "strangers"):
        Teams.create(team)
    with Sandbox.create(hosting=Hosting(team="reef"), name="pearl", keep=True) as sandbox:
        snapshot = sandbox.snapshot("shell").snapshot_id
        volume = Volumes.create("coral", team="reef").volume_id
        secret = Secrets.create("TOKEN", "kept", hosts=["example.com"], team="reef").secret_id
        template = Templates.record("atlas", sandbox, "reef")
        build = request_build("atlas", team="reef").build_id
        things = {"sandbox": sandbox.id, "snapshot": snapshot, "volume": volume, "secret": secret}
        yield Reef(
            sandbox,
            {**things, "template": template.template_id, "build": build},
            {
                "sandbox": "pearl",
                "snapshot": "shell",
                "volume": "coral",
                "secret": "TOKEN",
                "template": "reef/atlas",
                "build": template.build_id or "",
            },
            Keys.create("strangers", "for a test").key,
            Keys.create("reef", "for a test").key,
        )


def path_of(path: str, things: dict[str, str]) -> str:
    parts = {"{token}": "0" * 32, "{name}": "web", "{id}": things["build"]}
    if "{ref}" in path:
        parts["{ref}"] = things[_kind(path)]
    for part, value in parts.items():
        path = path.replace(part, value)
    return f"/atoll{path}"


def _kind(path: str) -> str:
    return {"sandboxes": "sandbox", "snapshots": "snapshot", "volumes": "volume", "secrets": "secret"}.get(
        path.split("/")[2], "template"
    )


def ask(
    server: Server, key: str | None, method: str, target: str, body: object = None, **headers: str
) -> httpx.Response:
    sent = {"x-api-key": key, **headers} if key is not None else headers
    return httpx.request(
        method, server.url + target, headers=sent, json=body if method != "GET" else None, timeout=ANSWER_S
    )


def told(answer: httpx.Response, things: dict[str, str]) -> tuple[int, str]:
    text = answer.text
    for thing in things.values():
        text = text.replace(thing, "IT")
    return answer.status_code, text


@pytest.fixture(autouse=True)
def unharmed(reef: Reef) -> Iterator[None]:
    def seen() -> object:
        info = reef.sandbox.info()
        return (
            (info.state, info.ends_at, info.network, info.limits, info.lifecycle),
            {each.snapshot_id for each in Snapshots.list(team="reef")},
            [each.name for each in Volumes.list(team="reef")],
            [(each.name, each.changed_at) for each in Secrets.list(team="reef")],
            [(each.public, each.tags, each.builds) for each in Templates.list(team="reef")],
        )

    before = seen()
    yield
    assert seen() == before


def test_every_operation_of_the_supervisor_is_open_with_a_rule_or_closed_with_a_reason() -> None:
    every = {(each.method.upper(), each.path) for each in described() if each.path.startswith("/v1/")}
    opened = {(each.method, each.path) for each in OPERATIONS}
    assert not opened & set(CLOSED_TO_CLIENTS)
    assert every <= opened | set(CLOSED_TO_CLIENTS)
    assert all(CLOSED_TO_CLIENTS.values())
    assert all(each.rules for each in OPERATIONS)


def test_every_operation_wants_a_key(server: Server, reef: Reef) -> None:
    targets = [
        (each.method, path_of(each.path, reef.things)) for each in (*OPERATIONS, LINKS, RUN, *UPLOADS)
    ] + [("GET", "/atoll/hello")]
    for method, target in targets:
        for key in (None, "atoll_" + "0" * 40, "é"):
            with contextlib.suppress(UnicodeEncodeError):
                answer = ask(server, key, method, target, {})
                assert (answer.status_code, answer.json()["code"]) == (401, "denied"), (method, target)


def test_what_is_another_team_s_looks_as_if_it_were_not_there(server: Server, reef: Reef) -> None:
    for operation in (*OPERATIONS, LINKS, RUN):
        if "{ref}" not in operation.path and "{id}" not in operation.path:
            continue
        answers = []
        for things in (MISSING, reef.things, reef.names):
            body = BODIES.get((operation.method, operation.path), {})
            text = (
                json.dumps(body).replace("SNAPSHOT", things["snapshot"]).replace("SANDBOX", things["sandbox"])
            )
            body = json.loads(text)
            target = path_of(operation.path, things)
            if operation.path.startswith("/v1/volumes/{ref}/"):
                target += "?path=/x"
            answers.append(told(ask(server, reef.key, operation.method, target, body), things))
        assert answers[0][0] == 404, (operation, answers)
        assert answers[0] == answers[1] == answers[2], operation


def test_lists_have_the_team_s_own_whatever_the_client_asks_for(server: Server, reef: Reef) -> None:
    for path in ("sandboxes", "snapshots", "volumes", "secrets", "templates", "disk", "audit", "alerts"):
        answer = ask(server, reef.key, "GET", f"/atoll/v1/{path}?team=reef&team=")
        assert answer.status_code == 200, answer.text
        for thing in (*reef.things.values(), *reef.names.values()):
            assert thing not in answer.text, path
    theirs = [
        told(ask(server, reef.key, "GET", f"/atoll/v1/snapshots?sandbox={things['sandbox']}"), things)
        for things in (MISSING, reef.things, reef.names)
    ]
    assert theirs[0][0] == 404
    assert theirs[0] == theirs[1] == theirs[2]


def test_nothing_is_made_for_another_team_or_of_another_team_s(server: Server, reef: Reef) -> None:
    wishes: tuple[tuple[str, dict[str, Any]], ...] = (
        ("volumes", {"name": "mine", "team": "reef"}),
        ("secrets", {"name": "MINE", "value": "x", "hosts": ["example.com"], "team": "reef"}),
        ("sandboxes", {"team": "reef", "lifecycle": {"ttl_s": 600}}),
    )
    for path, body in wishes:
        made = ask(server, reef.key, "POST", f"/atoll/v1/{path}", body)
        assert made.status_code in (200, 201), made.text
        assert made.json()["team"] == "strangers"
        thing = made.json()[f"{_kind(f'/v1/{path}')}_id"]
        assert ask(server, reef.key, "DELETE", f"/atoll/v1/{path}/{thing}").status_code < 300
    own = ask(server, reef.key, "POST", "/atoll/v1/sandboxes", {"lifecycle": {"ttl_s": 600}}).json()
    for things in (reef.things, reef.names, MISSING):
        target = f"/atoll/v1/sandboxes/{own['sandbox_id']}"
        for rest, wish in (
            ("promote", {"winner": things["sandbox"]}),
            ("rollback", {"snapshot": things["snapshot"]}),
            ("diff", {"base": things["snapshot"]}),
            ("diff", {"base": things["sandbox"]}),
        ):
            refused = ask(server, reef.key, "POST", f"{target}/{rest}", wish)
            assert refused.status_code == 404, (rest, refused.text)
    ask(server, reef.key, "DELETE", target)
    for things in (reef.things, reef.names, MISSING):
        for body in (
            {"from_snapshot": things["snapshot"]},
            {"template": things["template"]},
            {"volumes": {"/v": things["volume"]}},
        ):
            refused = ask(server, reef.key, "POST", "/atoll/v1/sandboxes", body)
            assert refused.status_code == 404, (body, refused.text)


@pytest.mark.parametrize(
    "body",
    [
        {"image": "/etc"},
        {"image": "../x"},
        {"image": "."},
        {"attributes": {"atoll.build": "x"}},
        {"network": {"rules": [{"hosts": ["host.atoll.internal"]}]}},
        {"network": {"rules": [{"hosts": ["HOST.atoll.internal."]}]}},
        {"network": {"rules": [{"addresses": ["10.0.0.0/8"]}]}},
        {"network": {"rules": [{"addresses": ["169.254.169.254"]}]}},
        {"network": {"rules": [{"hosts": ["*"], "addresses": ["192.168.0.0/16"]}]}},
        {"network": {"rules": [{"addresses": ["fc00::/7"]}]}},
        {"network": {"rules": [{"addresses": ["::ffff:10.0.0.1/128"]}]}},
        {"network": {"rules": [{"addresses": ["64:ff9b::a00:1/128"]}]}},
        {"network": {"rules": [{"addresses": ["0.0.0.0/0"]}]}, "volumes": {"/v": "no-such"}},
        {"idempotency_key": ""},
        {"unknown": 1},
    ],
)
def test_what_would_open_the_server_s_machine_is_refused(server: Server, reef: Reef, body: object) -> None:
    refused = ask(server, reef.key, "POST", "/atoll/v1/sandboxes", body)
    assert 400 <= refused.status_code < 500, refused.text
    assert "Traceback" not in refused.text


def test_odd_paths_lead_nowhere(server: Server, reef: Reef) -> None:
    for operation in OPERATIONS:
        if "{" not in operation.path:
            continue
        for odd in ODD:
            target = "/atoll" + re.sub(r"{\w+}", odd, operation.path)
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=ANSWER_S)
            with contextlib.closing(connection):
                connection.request(operation.method, target, None, {"x-api-key": reef.key})
                with connection.getresponse() as answer:
                    text = answer.read().decode()
            undone = operation.path == "/v1/requests/{token}"
            assert 400 <= answer.status < 500 or (undone and answer.status < 300), (
                target,
                answer.status,
                text,
            )
            assert "Traceback" not in text, target
    for method, target in (
        ("POST", "/atoll/stop"),
        ("POST", "/atoll/v1/../stop"),
        ("POST", "/atoll/v1/%2e%2e/stop"),
        ("POST", "/atoll//v1/unplug-all"),
        ("GET", "/atoll/list"),
        ("GET", "/v1/teams"),
        *((method, f"/atoll{path}") for method, path in CLOSED_TO_CLIENTS),
    ):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=ANSWER_S)
        with contextlib.closing(connection):
            connection.request(
                method, target.replace("{", "").replace("}", ""), None, {"x-api-key": reef.key}
            )
            with connection.getresponse() as answer:
                assert answer.status in (404, 405), (method, target)
                answer.read()


@pytest.mark.parametrize(
    ("spec", "status"),
    [
        ({"image": "/etc"}, 400),
        ({"image": "../x"}, 400),
        ({"image": "a/../../x"}, 400),
        ({"image": "sha256-" + "0" * 64}, 400),
        ({"steps": [{"kind": "copy", "sources": ["/etc/passwd"], "target": "/x"}]}, 400),
        ({"steps": [{"kind": "copy", "sources": ["x"], "target": "/x", "archive": "../../secret"}]}, 400),
        ({"prepare": [{"kind": "copy", "sources": ["x"], "target": "/x"}]}, 400),
        ({"template": "reef/atlas"}, None),
        ({"image": "127.0.0.1:1/x:1", "trusted_image": True, "public_image": False}, None),
        ({"steps": [{"kind": "copy", "sources": ["x"], "target": "/x", "archive": "0" * 64}]}, None),
    ],
)
def test_a_build_reads_nothing_of_the_server_s_machine_or_another_team(
    server: Server, reef: Reef, spec: object, status: int | None
) -> None:
    made = ask(server, reef.key, "POST", "/atoll/v1/templates", {"name": "probe", "team": "reef"})
    build = made.json()["build_id"]
    assert [each.name for each in Templates.list(team="strangers")] == ["probe"]
    answer = ask(server, reef.key, "POST", f"/atoll/v1/builds/{build}/run", {"spec": spec, "timeout_s": 300})
    if status is not None:
        assert answer.status_code == status, answer.text
    else:
        last = json.loads(answer.text.splitlines()[-1])
        assert "error" in last, answer.text
        assert "build" not in last
        assert Templates.build_info(build).state == "failed"
    ready = {"state": "ready", "snapshot_id": reef.things["snapshot"]}
    assert ask(server, reef.key, "POST", f"/atoll/v1/builds/{build}/finish", ready).status_code == 400
    assert ask(server, reef.key, "DELETE", "/atoll/v1/templates/probe").status_code == 204


def test_an_upload_belongs_to_its_team(server: Server, reef: Reef) -> None:
    target = f"/atoll/v1/uploads/{'ab' * 32}"
    headers = {"x-api-key": reef.own_key}
    sent = httpx.put(server.url + target, headers=headers, content=b"tar", timeout=ANSWER_S)
    assert sent.json() is True
    assert [ask(server, key, "GET", target).json() for key in (reef.own_key, reef.key)] == [True, False]
    for odd in ("x" * 64, "0" * 63, "..%2f..%2fsecret"):
        assert 400 <= ask(server, reef.key, "GET", f"/atoll/v1/uploads/{odd}").status_code < 500


def test_a_sandbox_is_held_to_the_network_of_its_template_or_snapshot(server: Server, reef: Reef) -> None:
    del reef
    Teams.create("shallows")
    key = Keys.create("shallows", "for a test").key
    shy = Policy(rules=(Rule(hosts=("example.com",)),))
    with Sandbox.create(hosting=Hosting(team="shallows"), network=shy) as sandbox:
        snapshot = sandbox.snapshot().snapshot_id
        Templates.record("held", sandbox, "shallows")
    told = {"rules": [{"hosts": ["example.com"]}]}
    wider: tuple[object, ...] = ("internet", {"rules": [{"hosts": ["example.com", "example.org"]}]})
    short = {"lifecycle": {"ttl_s": 600}}
    free = ask(server, key, "POST", "/atoll/v1/sandboxes", {**short, "network": "internet"}).json()
    for origin in ({"template": "held"}, {"from_snapshot": snapshot}):
        for network in wider:
            body = {**origin, **short, "network": network}
            assert ask(server, key, "POST", "/atoll/v1/sandboxes", body).status_code == 400, body
        made = ask(server, key, "POST", "/atoll/v1/sandboxes", {**origin, **short}).json()
        copies = ask(server, key, "POST", f"/atoll/v1/sandboxes/{made['sandbox_id']}/fork", {"count": 1})
        for each in (made["sandbox_id"], copies.json()[0]["sandbox_id"]):
            with contextlib.closing(Sandbox.connect(each)) as held:
                for network in wider:
                    target = f"/atoll/v1/sandboxes/{each}/network"
                    assert ask(server, key, "POST", target, {"network": network}).status_code == 400
                over_e2b = httpx.put(
                    f"{server.url}/sandboxes/{each}/network",
                    headers={"x-api-key": key},
                    json={},
                    timeout=ANSWER_S,
                )
                assert over_e2b.status_code == 403, over_e2b.text
                assert held.info().network == shy
                for network, now in (("none", "none"), (told, shy)):
                    ask(server, key, "POST", target, {"network": network}).raise_for_status()
                    assert held.info().network == now
                target = f"/atoll/v1/sandboxes/{free['sandbox_id']}/promote"
                assert ask(server, key, "POST", target, {"winner": each}).status_code == 400
                held.kill()
    ask(server, key, "DELETE", f"/atoll/v1/sandboxes/{free['sandbox_id']}").raise_for_status()
    Templates.delete("held", team="shallows")


def test_no_team_undoes_what_another_one_asked_for(server: Server, reef: Reef) -> None:
    token = "ab" * 16
    made = ask(
        server,
        reef.own_key,
        "POST",
        "/atoll/v1/sandboxes",
        {"lifecycle": {"ttl_s": 600}},
        **{REQUEST_HEADER: token},
    )
    sandbox_id = made.json()["sandbox_id"]
    ask(server, reef.key, "DELETE", f"/atoll/v1/requests/{token}")
    assert Sandbox.get(sandbox_id).state == "running"
    assert ask(server, reef.own_key, "DELETE", f"/atoll/v1/sandboxes/{sandbox_id}").status_code < 300


def test_no_team_dials_into_another_s_sandbox(server: Server, reef: Reef) -> None:
    def answered(key: str, sandbox: str, port: object = 49983) -> DialAnswer:
        far = At(server.url, key)
        answer, sock = Bridge.of_process().dial(far, sandbox, port, ANSWER_S)  # type: ignore[arg-type]
        if sock is not None:
            sock.close()
        return answer

    assert answered(reef.own_key, "pearl").sandbox_id == reef.sandbox.id
    for ref in (reef.sandbox.id, "pearl", NOTHING, "", "x\0", "pearl/stats", "../stop", "x" * 999):
        error = answered(reef.key, ref).error
        assert error is not None and error.code == "sandbox_not_found", ref
    for port in (0, 65536, "x", -1, "+1", "9" * 11):
        error = answered(reef.own_key, "pearl", port).error
        assert error is not None and error.code == "invalid_spec", port
    with pytest.raises(DeniedError):
        answered("atoll_" + "0" * 40, "pearl")


def test_numbers_out_of_bounds_are_refused(server: Server, reef: Reef) -> None:
    for path, name in (
        ("/v1/sandboxes", "limit"),
        ("/v1/sandboxes/{ref}/logs", "offset"),
        ("/v1/sandboxes/{ref}/egress/decisions", "offset"),
        ("/v1/sandboxes/{ref}/stats/history", "start"),
    ):
        for number in ("9" * 24, "-" + "9" * 24, "nan"):
            target = f"{path_of(path, reef.things)}?{urlencode({name: number})}"
            refused = ask(server, reef.own_key, "GET", target)
            assert (refused.status_code, refused.json()["code"]) == (400, "invalid_spec"), target


def test_a_tunnel_ends_soon_after_its_key(server: Server, reef: Reef) -> None:
    made = Keys.create("reef", "to be revoked")
    _, sock = Bridge.of_process().dial(At(server.url, made.key), reef.sandbox.id, 49983, ANSWER_S)
    assert sock is not None
    with sock:
        Keys.revoke(made.info.key_id)
        sock.settimeout(ANSWER_S)  # 5 s are promised, on a quiet machine
        assert sock.recv(1) == b""


def test_the_quotas_of_the_team_hold(server: Server, reef: Reef) -> None:
    Teams.set_quotas("strangers", Quotas(ttl_s=600))
    try:
        for body in ({}, {"lifecycle": {"ttl_s": 601}}):
            refused = ask(server, reef.key, "POST", "/atoll/v1/sandboxes", body)
            assert (refused.status_code, refused.json()["code"]) == (429, "quota"), refused.text
    finally:
        Teams.set_quotas("strangers", Quotas())
