"""Which hosts the policy ``packages`` allows."""

from __future__ import annotations

import asyncio

from atoll.policy import policy_of
from atoll.supervisor.lifecycle.package_registries import PackageRegistries
from atoll.types import Policy


def _registries(asked: list[int]) -> PackageRegistries:
    def look() -> dict[str, tuple[str, ...]]:
        asked.append(1)
        return {"cargo": ("crates.example", "index.example"), "gem": (), "npm": ("index.example",)}

    return PackageRegistries(look)


def test_clients_are_asked_once_and_only_where_a_policy_needs_them() -> None:
    asked: list[int] = []
    registries = _registries(asked)
    asyncio.run(registries.found_for([None, "internet", "none", Policy()]))
    assert registries.hosts_for("web-read-only") == frozenset()
    assert not asked
    asyncio.run(registries.found_for([None, "packages"]))
    assert registries.hosts_for("packages") == {"crates.example", "index.example"}
    assert asyncio.run(registries.by_client())["gem"] == ()
    assert len(asked) == 1
    rules = policy_of("packages", registries.hosts_for("packages"))
    assert rules is not None
    assert rules.rules[0].hosts == ("crates.example", "index.example")
