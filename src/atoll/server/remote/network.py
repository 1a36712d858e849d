"""What a client on another machine may open to its sandboxes: nothing of this host, and no private range."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from atoll.errors import InvalidSpecError
from atoll.policy import plain_pattern
from atoll.server.e2b.destinations import Range, is_closed, within
from atoll.types import HOST_NAME, EgressPolicy, Policy


def check_remote(network: EgressPolicy | None, opened: Sequence[Range]) -> None:
    """Check a policy that a client of the server gives. The supervisor checks that it is valid.

    Args:
        network: The policy.
        opened: Ranges that are not public, which the operator lets clients allow.

    Raises:
        InvalidSpecError: It names this host, or a range that is not public and not opened.
    """
    if not isinstance(network, Policy):
        return
    for rule in network.rules:
        if rule.action != "allow":
            continue
        for host in rule.hosts:
            if plain_pattern(host) == HOST_NAME:
                raise InvalidSpecError(
                    f"{HOST_NAME} is the server's own machine, which no sandbox of a client reaches",
                    hint="leave that rule out",
                )
        for text in rule.addresses:
            if _is_private(text, opened):
                raise InvalidSpecError(
                    f"{text} is not public, and the server does not open it",
                    hint="name a public range, or ask the operator for `atoll serve --private-range`",
                )


def _is_private(text: str, opened: Sequence[Range]) -> bool:
    try:
        found = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False  # the supervisor says what is wrong with it
    # a range that holds a private one beside public addresses is refused by the supervisor's own check
    return is_closed(found) and not within(found, opened)
