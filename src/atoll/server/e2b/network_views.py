"""Shows clients a sandbox's network as they gave it, if it is still in force."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from atoll.policy import login_of
from atoll.server.e2b.answers import Refusal
from atoll.server.e2b.attributes import Attributes
from atoll.server.e2b.destinations import EVERYTHING, Range
from atoll.server.e2b.egress import egress_of
from atoll.server.e2b.wire import Network
from atoll.types import EgressPolicy, Policy, SandboxInfo
from atoll.types.internal import from_json

# The supervisor stores 64 KiB of attributes.
_CHARS_MOST = 60_000


def kept_network(network: Network | None) -> str | None:
    """Return the stored form of a client's network, without the proxy's password.

    Raises:
        Refusal: The network is too long (400).
    """
    if network is None:
        return None
    kept = msgspec.structs.replace(
        without_password(network), allow_public_traffic=None, mask_request_host=None, https_ports=None
    )
    text = msgspec.json.encode(kept).decode()
    if len(text) > _CHARS_MOST:
        raise Refusal(400, f"the network has more than {_CHARS_MOST} characters")
    return text


def without_password(network: Network) -> Network:
    """Return a network without the password of its proxy, which only the policy stores."""
    if network.egress_proxy is None:
        return network
    return msgspec.structs.replace(
        network, egress_proxy=msgspec.structs.replace(network.egress_proxy, password=None)
    )


def told_network(info: SandboxInfo, attributes: Attributes, opened: Sequence[Range]) -> Network:
    """Return the view of a sandbox's network for clients."""
    given = _given(info.network, attributes, opened)
    told = _described(info.network) if given is None else given
    return msgspec.structs.replace(
        told,
        allow_public_traffic=attributes.public_traffic,
        mask_request_host=attributes.mask_host,
        https_ports=list(attributes.https_ports) or None,
        allow_internet_access=None,
    )


def _given(network: EgressPolicy, attributes: Attributes, opened: Sequence[Range]) -> Network | None:
    """Return the client's network; None if it is no longer in force, because the operator changed it."""
    if attributes.network is None:
        return None
    try:
        given = from_json(attributes.network, Network)
        compiled = egress_of(given, attributes.internet, opened)
    except (msgspec.MsgspecError, Refusal):
        return None  # another version of the server stored it
    if _compared(compiled) != _compared(network):
        return None
    flags = (attributes.internet, given.allow_internet_access)
    denied = given.deny_out or []
    if False in flags and EVERYTHING not in denied:
        given = msgspec.structs.replace(given, deny_out=[*denied, EVERYTHING])
    return given


def _compared(network: EgressPolicy) -> EgressPolicy:
    """Return a policy without the password of its proxy, which no client may see."""
    if not isinstance(network, Policy) or network.proxy is None:
        return network
    without, _ = login_of(network.proxy)
    return msgspec.structs.replace(network, proxy=msgspec.structs.replace(network.proxy, url=without))


def _described(network: EgressPolicy) -> Network:
    """Return a policy that no client gave, as far as E2B has words for it."""
    if network == "internet":
        return Network()
    if not isinstance(network, Policy):
        return Network(deny_out=[EVERYTHING])
    allowed = list(dict.fromkeys(_places(network, "allow")))
    denied = list(dict.fromkeys(_places(network, "deny")))
    if any(rule.action == "allow" and not (rule.hosts or rule.addresses) for rule in network.rules):
        return Network(allow_out=allowed or None, deny_out=denied or None)
    return Network(allow_out=allowed or None, deny_out=[*denied, EVERYTHING])


def _places(policy: Policy, action: str) -> Iterator[str]:
    for rule in policy.rules:
        if rule.action == action and not rule.inspects:
            yield from rule.addresses or (rule.hosts if action == "allow" else ())
