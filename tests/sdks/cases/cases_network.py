"""What sandboxes may reach, and secrets, through the server."""

from __future__ import annotations

import uuid
from typing import Any

import e2b
import pytest

from conftest import Face

pytestmark = pytest.mark.anyio


async def test_a_network_is_told_as_given_and_replaced(face: Face, anew: Any) -> None:
    name = f"token-{uuid.uuid4().hex[:8]}"
    await face.do(face.Secret.create(name, "value"))
    headers = {"authorization": f"Bearer {e2b.Secret.fill(name)}"}
    given = {
        "allow_out": ["api.example.com", "*.example.org", "192.0.2.7"],
        "deny_out": [e2b.ALL_TRAFFIC],
        "rules": {"api.example.com": [{"transform": {"headers": headers}}]},
    }
    made = await anew(network=given)
    told = (await face.do(made.get_info())).network
    assert {name: told[name] for name in given} == given
    await face.do(made.update_network({"deny_out": ["192.0.2.0/24"]}))
    told = (await face.do(made.get_info())).network
    assert told["deny_out"] == ["192.0.2.0/24"]
    assert not told.get("allow_out")
    assert not told.get("rules")
    assert await face.do(face.Secret.destroy(name))


async def test_wrong_networks_have_their_errors(face: Face, anew: Any) -> None:
    for network, words in (
        ({"allow_out": ["example.com"]}, "ALL_TRAFFIC"),
        ({"deny_out": ["example.com"]}, "invalid denied CIDR example.com"),
        ({"rules": {"*": [{"transform": {"headers": {"a": "b"}}}]}}, "not a valid domain name"),
    ):
        error = await face.raises(e2b.SandboxException, lambda: anew(network=network))  # noqa: B023
        assert words in str(error)


async def test_a_secret_is_made_changed_listed_and_destroyed(face: Face) -> None:
    name = f"Key-{uuid.uuid4().hex[:8]}"
    made = await face.do(face.Secret.create(name, "one", metadata={"a": "b"}))
    assert (made.name, made.version, made.metadata) == (name.lower(), 1, {"a": "b"})
    changed = await face.do(face.Secret.update(name, "two"))
    assert (changed.secret_id, changed.version) == (made.secret_id, 2)
    assert (await face.do(face.Secret.get_info(made.secret_id))).metadata == {"a": "b"}
    listed = await face.do(face.Secret.list().next_items())
    assert made.secret_id in [one.secret_id for one in listed]
    assert await face.do(face.Secret.exists(name))
    assert await face.do(face.Secret.destroy(name))
    assert not await face.do(face.Secret.destroy(name))
    assert not await face.do(face.Secret.exists(name))
    await face.raises(e2b.SecretNotFoundException, lambda: face.Secret.update(name, "three"))
