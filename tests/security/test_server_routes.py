"""Every route of the server, as the application has them, against what is another team's, and against odd names.

A new route is tested without a word here, unless it names things elsewhere than in its path: those are in ``NAMING``.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx
import pytest
from starlette.routing import Route

from atoll import Hosting, Keys, Sandbox, Snapshots, Teams, Templates, Volumes
from atoll.errors import AtollError
from atoll.sdk._sync.builds import request_build
from atoll.server.api import routes
from atoll.server.auth.access import Access
from atoll.server.settings import Settings
from atoll.server.tokens import Tokens
from tests.e2e.server import Server

ANSWER_S = 120.0
OPEN = {"/health", "/openapi.json", "/docs"}
SIGNED = ("/uploads/", "/volumecontent/")
# It has a token of its own, which no team has.
OWNERS = "/metrics"
DIGEST, OTHER_DIGEST = "ab" * 32, "cd" * 32
NOTHING = "nothing0nothing0noth"
NO_BUILD = "00000000-0000-4000-8000-000000000000"
# What most routes want in their body; each ignores what it does not know.
BODY = {
    "timeout": 60,
    "duration": 60,
    "count": 1,
    "name": "x",
    "public": True,
    "tags": ["x"],
    "allow_internet_access": False,
}
# Routes that name things in their query or body: ``SANDBOX``, ``VOLUME`` … stand for them.
NAMING: dict[tuple[str, str], list[tuple[str, dict[str, Any]]]] = {
    ("POST", "/sandboxes"): [("", {"templateID": "TEMPLATE"}), ("", {"templateID": "SNAPSHOT"})],
    ("POST", "/v2/sandboxes"): [
        ("", {"templateID": "TEMPLATE"}),
        ("", {"templateID": "reef/TEMPLATE"}),
        ("", {"templateID": "TEMPLATE:default"}),
        ("", {"templateID": "base", "volumeMounts": [{"name": "VOLUME", "path": "/v"}]}),
    ],
    ("GET", "/sandboxes"): [("", {})],
    ("GET", "/v2/sandboxes"): [("template=TEMPLATE", {}), ("limit=100", {})],
    ("GET", "/sandboxes/metrics"): [("sandbox_ids=SANDBOX", {})],
    ("GET", "/snapshots"): [("sandboxID=SANDBOX", {}), ("name=TEMPLATE", {}), ("", {})],
    ("POST", "/v3/templates"): [("", {"name": "reef/TEMPLATE"})],
    ("GET", "/templates"): [("", {}), ("teamID=reef", {})],
    ("GET", "/v2/templates"): [("nextToken=TEMPLATE", {}), ("", {})],
    ("POST", "/templates/tags"): [
        ("", {"target": "TEMPLATE", "tags": ["x"]}),
        ("", {"target": "reef/TEMPLATE:default", "tags": ["x"]}),
    ],
    ("DELETE", "/templates/tags"): [("", {"name": "TEMPLATE", "tags": ["x"]})],
    ("POST", "/volumes"): [],
    ("GET", "/volumes"): [("", {}), ("team=reef", {})],
    ("GET", "/secrets"): [("", {})],
    ("POST", "/secrets"): [],
}
ODD = [
    "..",
    "%2e%2e",
    "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "a%2fb",
    "%00",
    "a%00b",
    "a%0d%0ab:c",
    "%ff%fe",
    "%C3%A9",
]
ODD += [
    "%E2%80%AE",
    "%F0%9F%A6%80",
    "a" * 5000,
    "%25%32%65",
    "'%22%3C%3E",
    "*",
    "-",
    ":",
    "a:",
    ":a",
    "%20",
    "0",
]


def found_routes() -> list[tuple[str, str]]:
    """Method and path of all that the application answers, but for the remote SDK: test_remote_routes.py."""
    api = routes(Settings(), Tokens(bytes(32)), Access())
    plain = [route for route in api if isinstance(route, Route) and not route.path.startswith("/atoll/")]
    each = [(method, route.path) for route in plain for method in route.methods or ()]
    return sorted((method, path) for method, path in each if method != "HEAD")


@dataclass(frozen=True)
class Things:
    """Ids that may stand in paths."""

    sandbox: str
    volume: str
    template: str
    build: str
    snapshot: str

    def told(self, answer: httpx.Response) -> tuple[int, str]:
        """An answer, but for the ids that it repeats."""
        text = answer.text
        for thing in self.all:
            text = text.replace(thing[:64], "ID")
        return answer.status_code, text

    @property
    def all(self) -> list[str]:
        return [self.sandbox, self.volume, self.template, self.build, self.snapshot]

    def path(self, path: str) -> str:
        """A route's path with these; the suffix ``:path`` of a parameter is not its name."""
        values = {
            "sandbox_id": self.sandbox,
            "volume_id": self.volume,
            "template_id": self.template,
            "alias": self.template,
            "ref": self.template,
            "build_id": self.build,
            "digest": DIGEST,
        }
        return re.sub(r"{(\w+)(:path)?}", lambda match: values[match[1]], path)

    def named(self, text: str) -> str:
        for word, thing in (("SANDBOX", self.sandbox), ("VOLUME", self.volume), ("SNAPSHOT", self.snapshot)):
            text = text.replace(word, thing)
        return text.replace("TEMPLATE", self.template)

    def body(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self.body(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self.body(each) for each in value]
        return self.named(value) if isinstance(value, str) else value


MISSING = Things(NOTHING, NOTHING, "no-such-thing", NO_BUILD, NOTHING)


@dataclass(frozen=True)
class Reef:
    """What a team has, and a key of another team that has nothing but a template."""

    sandbox: Sandbox
    things: Things
    names: Things
    public: Things
    mixed: Things
    missing_mixed: Things
    key: str


def _template(team: str, name: str, sandbox: Sandbox) -> tuple[str, str, str]:
    made = Templates.record(name, sandbox.snapshot(), team)
    assert made.build_id and made.snapshot_id
    return made.template_id, made.build_id, made.snapshot_id


@pytest.fixture(scope="module")
def reef(server: Server) -> Iterator[Reef]:
    del server
    for team in ("reef", "strangers"):
        Teams.create(team)
    key = Keys.create("strangers", "for a test").key
    with (
        Sandbox.create(hosting=Hosting(team="reef"), name="pearl", keep=True) as sandbox,
        Sandbox.create() as nobody_s,
    ):
        volume = Volumes.create("coral", team="reef").volume_id
        template, build, snapshot = _template("reef", "shop", sandbox)
        shown, shown_build, shown_snapshot = _template("reef", "window", sandbox)
        Templates.publish(shown, True, team="reef")
        own = request_build("ours", team="strangers").template_id
        yield Reef(
            sandbox,
            Things(sandbox.id, volume, template, build, snapshot),
            Things("pearl", "coral", "shop", build, snapshot),
            Things(nobody_s.id, volume, shown, shown_build, shown_snapshot),
            Things(sandbox.id, volume, own, build, snapshot),
            Things(NOTHING, NOTHING, own, NO_BUILD, NOTHING),
            key,
        )


def ask(server: Server, key: str | None, method: str, path: str, body: Any = None) -> httpx.Response:
    headers = {} if key is None else {"x-api-key": key}
    sent = None if method == "GET" or (method == "DELETE" and body is None) else body or BODY
    return httpx.request(method, server.url + path, headers=headers, json=sent, timeout=ANSWER_S)


def as_it_is(server: Server, key: str, method: str, target: str) -> tuple[int, str]:
    """Status and body for a target that is sent as it is: httpx makes two dots into the directory above."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=ANSWER_S)
    with contextlib.closing(connection):
        headers = {"x-api-key": key, "content-type": "application/json"}
        connection.request(method, target, None if method == "GET" else json.dumps(BODY), headers)
        with connection.getresponse() as answer:
            return answer.status, answer.read().decode()


def keyed() -> list[tuple[str, str]]:
    rest = [each for each in found_routes() if each[1] not in {*OPEN, OWNERS}]
    return [each for each in rest if not each[1].startswith(SIGNED)]


@pytest.fixture(autouse=True)
def unharmed(reef: Reef) -> Iterator[None]:
    """Whatever was asked: what the team has is as it was."""

    def seen() -> list[object]:
        info = reef.sandbox.info()
        templates = [
            Templates.get(each, team="reef") for each in (reef.things.template, reef.public.template)
        ]
        return [
            (info.state, info.ends_at, info.network, info.lifecycle),
            [(each.tags, each.public, [one.state for one in each.builds]) for each in templates],
            Volumes.get(reef.things.volume).name,
            {each.snapshot_id for each in Snapshots.list(team="reef")},
        ]

    before = seen()
    yield
    assert seen() == before


def test_what_is_the_owner_s_wants_a_token_that_no_team_has(server: Server, reef: Reef) -> None:
    assert ("GET", OWNERS) in found_routes()
    for given in (None, reef.key, f"Bearer {reef.key}", "Bearer", f"Bearer {'0' * 64}"):
        headers = {"x-api-key": reef.key} | ({} if given is None else {"authorization": given})
        answer = httpx.get(server.url + OWNERS, headers=headers, timeout=ANSWER_S)
        assert (answer.status_code, answer.json()["message"]) == (401, "Invalid metrics token")


def test_all_that_is_not_open_or_signed_wants_a_key_first(server: Server, reef: Reef) -> None:
    wrong = "e2b_" + "0" * 40
    for method, path in keyed():
        for things in (reef.things, MISSING):
            answer = ask(server, None, method, things.path(path))
            assert (answer.status_code, answer.json()["message"]) == (401, "Invalid API key"), (method, path)
        answer = ask(server, wrong, method, reef.things.path(path))
        assert (answer.status_code, answer.json()["message"]) == (401, "Invalid API key"), (method, path)


def test_what_is_another_team_s_looks_as_if_it_were_not_there_on_every_route(
    server: Server, reef: Reef
) -> None:
    for method, path in keyed():
        if "{" not in path:
            continue
        nothing = MISSING.told(ask(server, reef.key, method, MISSING.path(path)))
        assert nothing[0] in (400, 404, 501), (method, path, nothing)
        for things in (reef.things, reef.names):
            theirs = things.told(ask(server, reef.key, method, things.path(path)))
            assert theirs == nothing, (method, path)


def test_a_build_of_another_team_is_not_found_under_a_template_of_one_s_own(
    server: Server, reef: Reef
) -> None:
    for method, path in keyed():
        if "{build_id}" in path:
            theirs = reef.mixed.told(ask(server, reef.key, method, reef.mixed.path(path)))
            nothing = reef.missing_mixed.told(ask(server, reef.key, method, reef.missing_mixed.path(path)))
            assert theirs == nothing and theirs[0] == 404, (method, path)


def test_a_template_that_others_may_use_is_still_its_team_s_alone(server: Server, reef: Reef) -> None:
    for method, path in keyed():
        if "{" in path and (method != "GET" or "{build_id}" in path):
            answer = ask(server, reef.key, method, reef.public.path(path))
            assert answer.status_code in (400, 404, 501), (method, path, answer.text)


def test_what_is_named_in_a_query_or_a_body_is_no_way_to_another_team_s(server: Server, reef: Reef) -> None:
    for method, path in keyed():
        if "{" in path:
            continue
        for query, body in NAMING[method, path]:
            answers = []
            for things in (reef.things, reef.names, MISSING):
                target = f"{path}?{things.named(query)}"
                answer = ask(server, reef.key, method, target, things.body(body) if body else None)
                if things is not MISSING:
                    assert not set(reef.things.all) & set(re.findall(r"[\w-]+", answer.text)) - {
                        things.template,
                        things.snapshot,
                        things.volume,
                    }, (method, path)
                answers.append(things.told(answer))
            assert answers[0] == answers[1] == answers[2], (method, target)


def test_odd_names_are_names_of_nothing(server: Server, reef: Reef) -> None:
    for method, path in keyed():
        if "{" not in path:
            continue
        for odd in ODD:
            target = re.sub(r"{\w+(:path)?}", odd, path)
            status, text = as_it_is(server, reef.key, method, target)
            assert 400 <= status < 500 or status == 501, (method, target, status, text)
            assert "Traceback" not in text and "/v1/" not in text, (method, target)


def test_a_token_opens_the_files_of_its_own_volume_alone(server: Server, reef: Reef) -> None:
    made = httpx.post(
        f"{server.url}/volumes", json={"name": "mine"}, headers={"x-api-key": reef.key}, timeout=ANSWER_S
    ).json()
    contents = [each for each in found_routes() if each[1].startswith("/volumecontent/")]
    assert contents
    for method, path in contents:
        for volume, token in (
            (reef.things.volume, made["token"]),
            (NOTHING, made["token"]),
            (made["volumeID"], "x"),
            (made["volumeID"], made["token"][:-1]),
            (made["volumeID"], reef.key),
            (made["volumeID"].upper(), made["token"]),
            (f"{made['volumeID']}%00", made["token"]),
            ("mine", made["token"]),
        ):
            answer = httpx.request(
                method,
                f"{server.url}{path.replace('{volume_id}', volume)}?path=/",
                headers={"authorization": f"Bearer {token}"},
                timeout=ANSWER_S,
            )
            told = (answer.status_code, answer.json()["message"])
            assert told == (401, "Invalid volume token"), (method, path, volume)
    Volumes.delete(made["volumeID"])


def test_the_address_of_an_upload_is_good_for_that_upload_alone(server: Server, reef: Reef) -> None:
    address = ask(server, reef.key, "GET", f"/templates/ours/files/{DIGEST}").json()["url"]
    query = dict(parse_qsl(urlsplit(address).query))
    changes: list[tuple[str, dict[str, str]]] = [
        (OTHER_DIGEST, {}),
        (DIGEST, {"team": "reef"}),
        (DIGEST, {"until": "99999999999"}),
        (DIGEST, {"until": "²"}),
        (DIGEST, {"signature": ""}),
        (DIGEST.upper(), {}),
        (f"..%2f{DIGEST}", {}),
    ]
    for digest, change in changes:
        target = f"{server.url}/uploads/{digest}?{urlencode({**query, **change})}"
        assert httpx.put(target, content=b"x", timeout=ANSWER_S).status_code in (403, 404), (digest, change)
    assert httpx.put(address, content=b"x", timeout=ANSWER_S).status_code == 200


def test_nothing_was_made_by_those_who_may_not(server: Server, reef: Reef) -> None:
    del server
    assert list(Sandbox.list(team="strangers")) == []
    assert [each.name for each in Templates.list(team="strangers")] == ["ours"]
    with pytest.raises(AtollError):
        Templates.get(reef.things.template, team="strangers")
