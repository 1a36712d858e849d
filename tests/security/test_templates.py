"""Templates of one team, asked for by another."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from atoll import Keys, Sandbox, Teams, Templates
from atoll.types import Quotas
from tests.e2e.server import Server, serving

BOUND_S = 60.0


@pytest.fixture(scope="module")
def teams(module_home: Path) -> Iterator[tuple[Server, str, str]]:
    """A server, and a key of each of two teams; the second may build one template at a time."""
    del module_home
    with serving() as server:
        keys = []
        for team, quotas in (("red", Quotas()), ("blue", Quotas(builds=1, ttl_s=600))):
            Teams.create(team, quotas)
            keys.append(Keys.create(team, "test").key)
        yield server, keys[0], keys[1]
        for template in Templates.list():
            Templates.delete(template.template_id)


def asked(server: Server, key: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
    request = urllib.request.Request(
        server.url + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"X-API-Key": key, "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=BOUND_S) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read() or b"null")


def built(server: Server, key: str, name: str, steps: list[object]) -> dict[str, Any]:
    """A template that is ready."""
    _, requested = asked(server, key, "POST", "/v3/templates", {"name": name})
    path = f"/templates/{requested['templateID']}/builds/{requested['buildID']}"
    assert asked(server, key, "POST", f"/v2{path}", {"steps": steps})[0] == 202
    end = time.monotonic() + BOUND_S
    while asked(server, key, "GET", f"{path}/status")[1]["status"] != "ready":
        assert time.monotonic() < end
        time.sleep(0.1)
    return dict(requested)


def test_what_a_team_has_is_as_if_it_were_not_there_for_others(teams: tuple[Server, str, str]) -> None:
    server, red, blue = teams
    made = built(server, red, "hidden", [{"type": "RUN", "args": ["echo secret > ~/s"]}])
    one, build = f"/templates/{made['templateID']}", made["buildID"]
    body: object
    for method, path, body in [
        ("GET", one, None),
        ("DELETE", one, None),
        ("PATCH", f"/v2{one}", {"public": True}),
        ("GET", f"{one}/tags", None),
        ("GET", f"{one}/files/{'0' * 64}", None),
        ("GET", f"{one}/builds/{build}/status", None),
        ("GET", f"{one}/builds/{build}/logs", None),
        ("POST", f"/v2{one}/builds/{build}", {"steps": []}),
        ("GET", "/templates/aliases/hidden", None),
        ("GET", "/templates/aliases/red%2Fhidden", None),
        ("GET", "/templates/red%2Fhidden", None),
        ("POST", "/templates/tags", {"target": "red/hidden", "tags": ["x"]}),
        ("DELETE", "/templates/tags", {"name": made["templateID"], "tags": ["x"]}),
        ("POST", "/v2/sandboxes", {"templateID": made["templateID"]}),
        ("POST", "/v2/sandboxes", {"templateID": "red/hidden"}),
    ]:
        status, answer = asked(server, blue, method, path, body)
        assert status == 404, (method, path)
        assert "secret" not in json.dumps(answer)
    assert asked(server, blue, "GET", "/templates")[1] == []
    assert asked(server, "e2b_" + "0" * 40, "GET", one)[0] == 401
    assert asked(server, red, "GET", one)[0] == 200


def test_what_is_public_can_be_used_by_others_and_not_changed(teams: tuple[Server, str, str]) -> None:
    server, red, blue = teams
    made = built(server, red, "shown", [{"type": "RUN", "args": ["echo open > ~/s"]}])
    one = f"/templates/{made['templateID']}"
    assert asked(server, red, "PATCH", f"/v2{one}", {"public": True})[0] == 200
    status, sandbox = asked(server, blue, "POST", "/v2/sandboxes", {"templateID": "red/shown"})
    assert status == 201
    with Sandbox.connect(sandbox["sandboxID"]) as handle:
        assert handle.run("cat ~/s").stdout == "open\n"
        assert handle.info().team == "blue"
        handle.kill()
    for method, path, body in [
        ("DELETE", one, None),
        ("PATCH", f"/v2{one}", {"public": False}),
        ("GET", one, None),
        ("GET", f"{one}/builds/{made['buildID']}/status", None),
        ("POST", "/templates/tags", {"target": "red/shown", "tags": ["mine"]}),
    ]:
        assert asked(server, blue, method, path, body)[0] == 404, (method, path)


def test_a_team_builds_no_more_at_once_than_it_may(teams: tuple[Server, str, str]) -> None:
    server, _, blue = teams
    wait = {"steps": [{"type": "RUN", "args": ["exec sleep 1000"]}]}
    paths = []
    for name in ("one", "two"):
        _, requested = asked(server, blue, "POST", "/v3/templates", {"name": name})
        paths.append((requested["templateID"], requested["buildID"]))
    (first, build), (second, other) = paths
    assert asked(server, blue, "POST", f"/v2/templates/{first}/builds/{build}", wait)[0] == 202
    assert asked(server, blue, "POST", f"/v2/templates/{second}/builds/{other}", wait)[0] == 429
    assert asked(server, blue, "DELETE", f"/templates/{first}")[0] == 204
    assert asked(server, blue, "POST", f"/v2/templates/{second}/builds/{other}", wait)[0] == 202
    assert asked(server, blue, "DELETE", f"/templates/{second}")[0] == 204
    assert not list(Sandbox.list())
