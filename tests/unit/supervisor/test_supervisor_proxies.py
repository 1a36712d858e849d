"""Upstream proxies of a supervisor on fakes: where their passwords are, and where not."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

from atoll.supervisor.tenants.proxy_passwords import ProxyPasswords
from atoll.types import Policy, UpstreamProxy
from tests.secret_forms import forms
from tests.unit.supervisor.harness import Harness, with_harness

PASSWORD = "pr0xy-3141592653-password"
PLACE = "proxy.example:1080"
MASKED = f"socks5://ann:***@{PLACE}"


def behind(password: str = PASSWORD, *, place: str = PLACE, **more: object) -> dict[str, Any]:
    return {"rules": [{"hosts": ["*"]}], "proxy": {"url": f"socks5://ann:{password}@{place}", **more}}


def holding(path: Path, *values: str) -> list[Path]:
    searched = [form for value in values for form in forms(value)]
    files = [found for found in path.rglob("*") if found.is_file()]
    return [found for found in files if any(one in found.read_bytes() for one in searched)]


def used(harness: Harness, made: Any) -> str | None:
    """The URL with which a sandbox's relay connects."""
    running = harness.system.inventory.sandbox(made["sandbox_id"]).running
    assert running is not None
    policy: Any = running.link.policy  # type: ignore[attr-defined] # of the fake
    assert isinstance(policy, Policy)
    return policy.proxy.url if policy.proxy else None


async def change(harness: Harness, made: Any, network: object) -> Any:
    return await harness.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/network", {"network": network})


@with_harness
async def test_a_proxys_password_is_used_and_neither_told_nor_on_the_disk(harness: Harness) -> None:
    made = await harness.create(network=behind())
    assert made["network"]["proxy"]["url"] == MASKED
    assert used(harness, made) == f"socks5://ann:{PASSWORD}@{PLACE}"
    for path in (
        "/v1/sandboxes",
        f"/v1/sandboxes/{made['sandbox_id']}",
        f"/v1/sandboxes/{made['sandbox_id']}/logs",
    ):
        assert PASSWORD.encode() not in (await harness.ask("GET", path)).body
    row = harness.system.inventory.sandbox(made["sandbox_id"]).row
    assert PASSWORD not in repr(row)
    await harness.crash()
    assert holding(harness.home.path, PASSWORD) == []
    await harness.start()


@with_harness
async def test_sleep_forks_snapshots_and_another_supervisor_keep_the_password(harness: Harness) -> None:
    made = await harness.create(network=behind())
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    (fork,) = (await harness.ask("POST", f"{one}/fork", {"count": 1})).json
    snapshot = (await harness.ask("POST", f"{one}/snapshots", {})).json
    assert PASSWORD not in json.dumps([fork, snapshot])
    await harness.asleep(made)
    await harness.crash()
    assert holding(harness.home.path, PASSWORD) == []
    await harness.start()
    assert (await harness.ask("POST", f"{one}/resume")).status == 200
    child = await harness.create(from_snapshot=snapshot["snapshot_id"])
    assert (await harness.ask("POST", f"{one}/rollback", {"snapshot": snapshot["snapshot_id"]})).status == 200
    for sandbox in (made, fork, child):
        assert used(harness, sandbox) == f"socks5://ann:{PASSWORD}@{PLACE}"


@with_harness
async def test_the_mask_stands_for_the_password_of_the_same_proxy_and_user_only(harness: Harness) -> None:
    made = await harness.create(network=behind())
    more = {**behind("***", hosts=["*.example"]), "mode": "observe"}
    answer = await change(harness, made, more)
    assert answer.status == 200
    assert used(harness, made) == f"socks5://ann:{PASSWORD}@{PLACE}"
    for other in (
        behind("***", place="evil.example:1080"),
        behind("***", place="proxy.example:1081"),
        {"proxy": {"url": f"socks5://bob:***@{PLACE}"}},
        {"proxy": {"url": f"http://ann:***@{PLACE}"}},
    ):
        answer = await change(harness, made, other)
        assert (answer.status, answer.json["code"]) == (400, "invalid_spec")
        assert "the proxy's password is masked" in answer.json["message"]
        assert used(harness, made) == f"socks5://ann:{PASSWORD}@{PLACE}"
    answer = await harness.ask("POST", "/v1/sandboxes", {"network": behind("***")})
    assert (answer.status, answer.json["code"]) == (400, "invalid_spec")
    for unmasked, expected in (("%2A%2A%2A", "%2A%2A%2A"), ("n3w-password", "n3w-password")):
        assert (await change(harness, made, behind(unmasked))).status == 200
        assert used(harness, made) == f"socks5://ann:{expected}@{PLACE}"
    assert (await change(harness, made, "none")).status == 200
    assert (await change(harness, made, behind("***"))).status == 400


@with_harness
async def test_the_mask_stands_for_the_password_of_a_snapshot(harness: Harness) -> None:
    made = await harness.create(network=behind())
    snapshot = (await harness.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/snapshots", {})).json
    child = await harness.create(from_snapshot=snapshot["snapshot_id"], network=behind("***", hosts=["*.b"]))
    assert used(harness, child) == f"socks5://ann:{PASSWORD}@{PLACE}"


@with_harness
async def test_what_is_sealed_opens_for_its_team_its_proxy_and_its_user_only(harness: Harness) -> None:
    made = await harness.create(network=behind())
    passwords, row = (
        ProxyPasswords(harness.system.secrets.vault),
        harness.system.inventory.sandbox(made["sandbox_id"]).row,
    )
    assert isinstance(row.network, Policy)
    assert row.network.proxy is not None
    sealed = row.network.proxy.url
    assert passwords.open(row.network, None) == Policy(
        rules=row.network.rules, proxy=UpstreamProxy(url=f"socks5://ann:{PASSWORD}@{PLACE}")
    )
    for url in (sealed.replace("ann", "bob"), sealed.replace(":1080", ":1081"), sealed[:-30] + sealed[-29:]):
        moved = Policy(proxy=UpstreamProxy(url=url))
        assert passwords.open(moved, None) == moved
    assert passwords.open(row.network, "reef") == row.network


@with_harness
async def test_without_the_key_the_password_stays_sealed_and_a_new_one_mends_it(harness: Harness) -> None:
    made = await harness.create(network=behind())
    await harness.crash()
    harness.home.secrets_key.unlink()
    await harness.start()
    assert PASSWORD not in (used(harness, made) or "")
    assert "atoll-sealed." in (used(harness, made) or "")
    answer = await harness.ask("GET", f"/v1/sandboxes/{made['sandbox_id']}")
    assert answer.json["network"]["proxy"]["url"] == MASKED
    assert (await change(harness, made, behind())).status == 200
    assert used(harness, made) == f"socks5://ann:{PASSWORD}@{PLACE}"


@with_harness
async def test_an_invalid_proxy_is_refused_without_its_password(harness: Harness) -> None:
    for url in (
        f"socks4://ann:{PASSWORD}@{PLACE}",
        f"socks5://ann:{PASSWORD}@10.0.0.1:1080",
        f"ann:{PASSWORD}",
    ):
        answer = await harness.ask("POST", "/v1/sandboxes", {"network": {"proxy": {"url": url}}})
        assert (answer.status, answer.json["code"]) == (400, "invalid_spec")
        assert PASSWORD.encode() not in answer.body
    await harness.crash()
    assert holding(harness.home.path, PASSWORD) == []
    await harness.start()


@with_harness
async def test_a_damaged_database_brings_the_proxy_back_from_the_copy_of_its_row(harness: Harness) -> None:
    made = await harness.create(network=behind())
    await harness.system.aclose()
    database = sqlite3.connect(harness.home.database)
    database.execute("UPDATE sandboxes SET network = '{'")
    database.commit()
    database.close()
    await harness.start()
    assert used(harness, made) == f"socks5://ann:{PASSWORD}@{PLACE}"
