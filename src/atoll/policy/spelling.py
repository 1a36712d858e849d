"""Policies as the programs beside the supervisor read them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from atoll.policy.hosts import plain_pattern
from atoll.policy.proxies import with_plain_host
from atoll.policy.ranges import network_of
from atoll.types import Policy, UpstreamProxy


def spelled_out(policy: Policy) -> dict[str, Any]:
    """Return a checked policy with every field, ASCII names, and ranges that all programs read alike.

    This leaves out the proxy's URL: a judge does not need it, and it may have a password.
    """
    proxy = policy.proxy
    return {
        "rules": [
            {
                **_with_defaults(rule),
                "hosts": _names(rule.hosts),
                "addresses": [str(network_of(text)) for text in rule.addresses],
            }
            for rule in policy.rules
        ],
        "observe": policy.mode == "observe",
        "passthrough": _names(policy.passthrough),
        "proxy": None if proxy is None else {"hosts": _names(proxy.hosts)},
    }


def proxy_document(proxy: UpstreamProxy) -> dict[str, Any]:
    """Return a proxy for the program that connects through it: its host in ASCII, and ranges in one form."""
    return {
        "url": with_plain_host(proxy),
        "hosts": _names(proxy.hosts),
        "addresses": [str(network_of(text)) for text in proxy.addresses],
    }


def _names(patterns: Iterable[str]) -> list[str]:
    return [plain_pattern(pattern) or pattern for pattern in patterns]


def _with_defaults(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return {name: _with_defaults(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, tuple):
        return [_with_defaults(one) for one in value]
    return value
