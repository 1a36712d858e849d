"""Keeps clients on other machines from opening this host or a private range to their sandboxes."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from atoll.errors import InvalidSpecError
from atoll.host import is_this_host
from atoll.policy import plain_host, plain_pattern, proxy_address, touches_closed
from atoll.server.e2b.destinations import Range, is_closed, within
from atoll.types import HOST_NAME, EgressPolicy, Policy, Rule, UpstreamProxy

_HINT = "name a public one, or ask the operator for `atoll serve --private-range`"


def check_remote(network: EgressPolicy | None, opened: Sequence[Range]) -> None:
    """Check a policy that a client of the server gives. The supervisor checks that it is valid.

    Args:
        network: The policy.
        opened: Ranges that are not public, which the operator lets clients allow.

    Raises:
        InvalidSpecError: It names this host, or a range that is not public and not opened, for a sandbox or for
            the proxy that this host connects to.
    """
    if not isinstance(network, Policy):
        return
    for rule in network.rules:
        if rule.may_pass:
            _check_rule(rule, opened)
    if network.proxy is not None:
        _check_proxy(network.proxy, opened)


def _check_rule(rule: Rule, opened: Sequence[Range]) -> None:
    for host in rule.hosts:
        if plain_pattern(host) == HOST_NAME:
            raise InvalidSpecError(
                f"{HOST_NAME} is the server's own machine, which no sandbox of a client reaches",
                hint="leave that rule out",
            )
    for text in rule.addresses:
        found = _range(text)
        # a range that holds a private one beside public addresses is refused by the supervisor's own check
        if found is not None and is_closed(found) and not within(found, opened):
            raise InvalidSpecError(f"{text} is not public, and the server does not open it", hint=_HINT)


def _check_proxy(proxy: UpstreamProxy, opened: Sequence[Range]) -> None:
    """Refuse a proxy at this host or in its network. The program that connects judges names."""
    try:
        host = proxy_address(proxy).host
    except ValueError:
        return  # the supervisor reports the fault
    given = [host] if plain_host(host) is None else []
    for text in (*given, *proxy.addresses):
        found = _range(text)
        if found is None:
            continue
        if touches_closed(found) and not within(found, opened):
            raise InvalidSpecError(
                f"the proxy is at {text}, which is not public, and the server does not open it", hint=_HINT
            )
        if found.num_addresses == 1 and is_this_host(str(found.network_address)):
            raise InvalidSpecError(
                f"the proxy is at {text}, which is the server's own machine", hint="name another proxy"
            )


def _range(text: str) -> Range | None:
    """Return a range; None if the text is none, which the supervisor reports."""
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
