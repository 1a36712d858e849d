"""Teams at a real server: who is let in, what each may have, and that nobody sees what is another's."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import e2b
import httpx
import pytest
from tests.e2e.server import Server, serving
from tests.homes import contents_of
from tests.waiting import until

from atoll import Hosting, Keys, Quotas, Sandbox, Snapshots, Teams, Templates, Volumes
from atoll.errors import InUseError, QuotaError
from atoll.host import Home
from atoll.types.internal import key_id_of

ANSWER_S = 120.0
MISSING = {
    "sandbox_id": "nothing0nothing0noth",
    "volume_id": "nothing0nothing0noth",
    "template_id": "no0such",
}
# What most routes want in their body; each ignores what it does not know.
BODY = {"timeout": 60, "duration": 60, "count": 1, "name": "foreign", "allow_internet_access": False}
# Ends well when a write fails, as one must long before.
FILL = "for n in $(seq 100); do head -c 5M /dev/urandom >> big || exit 0; done; exit 1"
WRONG = "e2b_" + "0" * 40
DENIED = (401, '{"code":401,"message":"Invalid API key"}')
NO_ROUTE = (
    {(404, '{"code":404,"message":"Not Found"}')},
    {(405, '{"code":405,"message":"Method Not Allowed"}')},
)


def asking(server: Server, key: str | None = None) -> httpx.Client:
    headers = {} if key is None else {"x-api-key": key}
    return httpx.Client(base_url=server.url, headers=headers, timeout=ANSWER_S)


def status(client: httpx.Client, key: str, path: str) -> int:
    return client.get(path, headers={"x-api-key": key}).status_code


@contextlib.contextmanager
def team(name: str, quotas: Quotas | None = None) -> Iterator[str]:
    """A team, a key of which this gives; at the end it owns nothing and is gone."""
    Teams.create(name, quotas)
    try:
        yield Keys.create(name, "for a test").key
    finally:
        for info in list(Sandbox.list(team=name)):
            with Sandbox.connect(info.sandbox_id, wake=False) as sandbox:
                sandbox.kill()
        for volume in Volumes.list(team=name):
            Volumes.delete(volume.volume_id)
        for template in Templates.list(team=name):
            Templates.delete(template.template_id, team=name)
        until(lambda: not Snapshots.list(team=name))
        Teams.delete(name)


def operations(server: Server) -> list[tuple[str, str]]:
    """Method and path of all that a key opens."""
    paths = httpx.get(f"{server.url}/openapi.json", timeout=ANSWER_S).json()["paths"]
    found = [(method, path) for path, methods in paths.items() for method in methods]
    return [each for each in found if not each[1].startswith(("/health", "/metrics", "/volumecontent"))]


def asked(client: httpx.Client, method: str, path: str, ids: dict[str, str]) -> httpx.Response:
    filled = re.sub(r"\{(\w+)\}", lambda found: ids.get(found[1], "x"), path)
    body = None if method in ("get", "delete") else BODY
    return client.request(method, filled, json=body)


def told(response: httpx.Response, ids: dict[str, str]) -> tuple[int, str]:
    text = response.text
    for id_ in ids.values():
        text = text.replace(id_, "ID")
    return response.status_code, text


def test_of_thirty_creates_at_once_as_many_pass_as_the_team_may_have(server: Server) -> None:
    async def creates(key: str) -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=30)
        async with httpx.AsyncClient(base_url=server.url, timeout=ANSWER_S, limits=limits) as client:
            body, headers = {"templateID": "base", "timeout": 300}, {"x-api-key": key}
            asks = (client.post("/v2/sandboxes", json=body, headers=headers) for _ in range(30))
            return list(await asyncio.gather(*asks))

    with team("crowd", Quotas(running=5)) as key:
        answers = asyncio.run(creates(key))
        made = [answer.json()["sandboxID"] for answer in answers if answer.status_code == 201]
        refused = [answer for answer in answers if answer.status_code == 429]
        assert (len(made), len(refused)) == (5, 25)
        assert all("crowd" in answer.json()["message"] for answer in refused)
        assert all(answer.headers["should-retry"] == "false" for answer in refused)
        assert {info.sandbox_id for info in Sandbox.list(team="crowd")} == set(made)
        assert Teams.use("crowd").running == 5
        with pytest.raises(QuotaError, match="6 running sandboxes, but may have only 5"):
            Sandbox.create(hosting=Hosting(team="crowd"))
        with pytest.raises(e2b.RateLimitException):
            e2b.Sandbox.create(api_key=key, api_url=server.url)
        with Sandbox.connect(made[0]) as sandbox:
            with pytest.raises(QuotaError):
                sandbox.fork(1)
            with pytest.raises(InUseError):
                Teams.delete("crowd")
            sandbox.suspend()
            Sandbox.create(hosting=Hosting(team="crowd"), keep=True).close()
            with pytest.raises(QuotaError):
                sandbox.resume()
            assert sandbox.info().state == "suspended"


def test_metrics_are_for_whoever_can_read_the_home(server: Server) -> None:
    file = Home.default().path / "server" / "metrics-token"
    assert file.stat().st_mode & 0o077 == 0
    with Sandbox.create(hosting=Hosting(team="default")):
        for key, status in ((server.key, 401), (WRONG, 401), (file.read_text(), 200)):
            headers = {"authorization": f"Bearer {key}"}
            answer = httpx.get(f"{server.url}/metrics", headers=headers, timeout=ANSWER_S)
            assert answer.status_code == status, answer.text
        assert 'atoll_sandboxes{state="running",team="default"} ' in answer.text


def test_what_a_team_wrote_counts_as_its_disk(server: Server) -> None:
    with team("hoard", Quotas(disk_mib=40)):
        with (
            Sandbox.create(hosting=Hosting(team="hoard")) as other,
            Sandbox.create(hosting=Hosting(team="hoard")) as sandbox,
        ):
            full = sandbox.run(FILL, timeout_s=ANSWER_S)
            assert (full.exit_code, "No space left" in full.stderr) == (0, True), full.stderr
            other.run("head -c 20M /dev/urandom > big; sync", timeout_s=ANSWER_S).check()
            sandbox.run("sync", timeout_s=ANSWER_S).check()
            until(lambda: Teams.use("hoard").disk_bytes >= 50 << 20)
            for work in (
                lambda: Sandbox.create(hosting=Hosting(team="hoard")),
                sandbox.snapshot,
                sandbox.suspend,
            ):
                with pytest.raises(QuotaError, match="MiB of disk"):
                    work()
        with Sandbox.create(hosting=Hosting(team="hoard")):
            assert Teams.use("hoard").disk_bytes < 40 << 20


def test_without_a_key_that_opens_nothing_is_told(server: Server) -> None:
    with team("reef") as key, Sandbox.create(hosting=Hosting(team="reef")) as sandbox:
        expired, revoked = Keys.create("reef", "short", 0.01).key, Keys.create("reef", "gone")
        Keys.revoke(revoked.info.key_id)
        ids = dict.fromkeys(MISSING, sandbox.id)
        with asking(server) as nobody, asking(server, WRONG) as guesser:
            path = f"/sandboxes/{sandbox.id}"
            assert [status(nobody, one, path) for one in (key, expired, revoked.key)] == [200, 401, 401]
            for method, path in operations(server):
                answers = {
                    told(asked(nobody, method, path, ids), ids),
                    told(asked(nobody, method, path, MISSING), MISSING),
                    told(asked(guesser, method, path, ids), ids),
                }
                assert answers in ({DENIED}, *NO_ROUTE), (method, path)
        with pytest.raises(e2b.AuthenticationException):
            e2b.Sandbox.connect(sandbox.id, api_key=WRONG, api_url=server.url)


def test_the_key_of_a_server_dies_with_it_however_it_dies(server: Server) -> None:
    with serving() as doomed, asking(server) as client:
        doomed.process.kill()
        doomed.process.wait()
        end = time.monotonic() + ANSWER_S
        while is_open(key_id_of(doomed.key)):
            assert time.monotonic() < end
            time.sleep(0.05)
        assert status(client, doomed.key, "/v2/sandboxes") == 401
        assert status(client, server.key, "/v2/sandboxes") == 200
    # nobody was left to revoke it: process 1 began at another time
    left = Keys.create("default", "serve 1 18446744073709551615").info
    with serving():
        assert not is_open(left.key_id)
        assert is_open(key_id_of(server.key))


def is_open(key_id: str) -> bool:
    (info,) = [info for info in Keys.list() if info.key_id == key_id]
    return info.revoked_at is None


def test_what_is_another_team_s_looks_as_if_it_were_not_there(server: Server) -> None:
    with (
        team("reef"),
        team("strangers") as key,
        Sandbox.create(hosting=Hosting(team="reef"), name="secret") as sandbox,
    ):
        volume = Volumes.create("data", team="reef")
        template = Templates.record("shop", sandbox.snapshot(), "reef").template_id
        ids = {"sandbox_id": sandbox.id, "volume_id": volume.volume_id, "template_id": template}
        with asking(server, key) as client:
            for method, path in operations(server):
                if "{" not in path:
                    continue
                theirs = told(asked(client, method, path, ids), ids)
                assert theirs == told(asked(client, method, path, MISSING), MISSING), (method, path)
                assert theirs[0] >= 400, (method, path)
            named = {**MISSING, "sandbox_id": "secret"}
            assert asked(client, "get", "/sandboxes/{sandbox_id}", named).status_code == 404
            for path in ("/v2/sandboxes", "/sandboxes", "/snapshots", "/volumes", "/templates"):
                assert sandbox.id not in client.get(path).text
                assert volume.volume_id not in client.get(path).text
                assert template not in client.get(path).text
        assert sandbox.info().state == "running"
        assert Volumes.get(volume.volume_id).name == "data"
        assert Templates.get(template, team="reef").public is False


def test_a_team_that_asks_too_often_is_told_when_to_come_back(server: Server) -> None:
    with team("hasty", Quotas(requests_s=0.01)) as key, asking(server, key) as client:
        answers = [client.get("/v2/sandboxes") for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 429, 429]
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 100


def test_requests_for_the_files_of_a_volume_count_to_its_team(server: Server, module_home: Path) -> None:
    with team("leafing", Quotas(requests_s=0.3)) as key, asking(server, key) as client:
        began = time.monotonic()
        made = client.post("/volumes", json={"name": "leaves"}).json()
        headers = {"authorization": f"Bearer {made['token']}"}
        path = f"/volumecontent/{made['volumeID']}/dir?path=/"
        with asking(server) as holder:
            answers = [holder.get(path, headers=headers)]
            while answers[-1].status_code == 200:
                answers.append(holder.get(path, headers=headers))
        assert answers[-1].status_code == 429
        # Three at once, of which one has made the volume, and those that the time has added.
        assert 3 <= len(answers) <= 3 + 0.3 * (time.monotonic() - began)
        assert (answers[-1].json()["code"], int(answers[-1].headers["retry-after"]) > 0) == ("quota", True)
        assert 429 in {client.get("/volumes").status_code for _ in range(3)}
        lines = _lines(module_home / "server" / "access.log")
        assert [line["team"] for line in lines if (line["route"] or "").startswith("/volumecontent")][
            -3:
        ] == ["leafing"] * 3


def test_neither_the_logs_nor_the_home_hold_what_opens_anything(server: Server, module_home: Path) -> None:
    with team("quiet") as key:
        sandbox = e2b.Sandbox.create(
            api_key=key, api_url=server.url, sandbox_url=server.variables["E2B_SANDBOX_URL"]
        )
        sandbox.files.write("note", "hello")
        url = sandbox.download_url("note")
        assert httpx.get(url, timeout=ANSWER_S).text == "hello"
        with asking(server) as nobody:
            assert status(nobody, WRONG, f"/sandboxes/{sandbox.sandbox_id}") == 401
        token = sandbox._envd_access_token
        signature = httpx.URL(url).params["signature"]
        assert token
        # Neither a disk of a sandbox nor an image of this machine is atoll's own file.
        secrets = [each.encode() for each in (key, key[4:], token, signature, WRONG)]
        # Neither a disk of a sandbox nor an image of this machine is atoll's own file.
        written = contents_of(module_home, without=("images", "layers", "bin", "d1"))
        assert [path for path, data in written if any(secret in data for secret in secrets)] == []
        log = server.log.read_bytes()
        assert not any(secret in log for secret in secrets)
        lines = _lines(module_home / "server" / "access.log")
        mine = [line for line in lines if line["team"] == "quiet"]
        made = [line for line in mine if line["route"] == "/v2/sandboxes"]
        assert [(line["method"], line["status"]) for line in made] == [("POST", 201)]
        assert [line["key_id"] for line in made] == [info.key_id for info in Keys.list("quiet")]
        passed = [line for line in lines if line["sandbox_id"] == sandbox.sandbox_id]
        assert {(line["route"], line["team"]) for line in passed} == {("gateway", "quiet")}
        assert sandbox.kill()


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
