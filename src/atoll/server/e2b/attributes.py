"""The server's record of a sandbox, in its attributes. Only the network may change in its life."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from atoll.errors import InvalidSpecError
from atoll.types import Ports, SandboxInfo
from atoll.types.internal import OWN_ATTRIBUTES

SECURE = "e2b_secure"
MASK_HOST = "e2b_mask_host"
HTTPS_PORTS = "e2b_https_ports"
TEMPLATE = "e2b_template"
ALIAS = "e2b_alias"
# This key starts with the prefix that forks do not inherit, because that request did not make the fork.
IDEMPOTENCY = f"{OWN_ATTRIBUTES}e2b_idempotency"
INTERNET = "e2b_internet"
NETWORK = "e2b_network"
_NO, _YES = "0", "1"


class Attributes(msgspec.Struct, frozen=True, kw_only=True):
    """The server's record of a sandbox.

    Args:
        template: Id of the template that the sandbox was made from, or the name of an image.
        alias: Name of that template, if it has one.
        secure: The guest agent asks for an access token.
        public_traffic: Ports other than the agent's ask for no token.
        mask_host: The host of requests that programs inside see; None means the real one.
        https_ports: Ports on which servers inside speak HTTPS.
        internet: Whether the creator asked for the internet or for none; None means neither.
        network: The network that clients asked for, as JSON; None if they asked for none.
        idempotency: The key of the request that made the sandbox, and a digest of its content.
    """

    template: str
    alias: str | None = None
    secure: bool = True
    public_traffic: bool = True
    mask_host: str | None = None
    https_ports: tuple[int, ...] = ()
    internet: bool | None = None
    network: str | None = None
    idempotency: str | None = None

    @property
    def ports(self) -> Ports:
        """The ``public_traffic`` argument of ``Sandbox.create``."""
        return "open" if self.public_traffic else "closed"

    def kept(self) -> dict[str, str]:
        """Return the attributes in the supervisor's form, without usual values."""
        kept = {TEMPLATE: self.template}
        if not self.secure:
            kept[SECURE] = _NO
        optional = {
            ALIAS: self.alias,
            MASK_HOST: self.mask_host,
            HTTPS_PORTS: " ".join(map(str, self.https_ports)) or None,
            INTERNET: flag_of(self.internet),
            NETWORK: self.network,
            IDEMPOTENCY: self.idempotency,
        }
        return kept | {name: value for name, value in optional.items() if value is not None}


def flag_of(value: bool | None) -> str | None:
    """Return the stored form of a flag."""
    return None if value is None else _YES if value else _NO


def ports_of(text: str) -> tuple[int, ...]:
    """Return the ports in a stored list. A client wrote the list, so this leaves out invalid entries."""
    numbers = [int(each) for each in text.split() if each.isascii() and each.isdecimal() and len(each) <= 5]
    return tuple(number for number in numbers if 0 < number < 65536)


def check_attributes(given: Mapping[str, str]) -> None:
    """Refuse attributes of a client that the server could not use.

    Raises:
        InvalidSpecError: A list of ports is none.
    """
    text = given.get(HTTPS_PORTS, "")
    if len(ports_of(text)) != len(text.split()):
        raise InvalidSpecError(
            f"the attribute {HTTPS_PORTS} is {text[:100]!r}", hint="give ports with blanks between them"
        )


def read(info: SandboxInfo) -> Attributes:
    """Read the record of a sandbox.

    A sandbox that no server made counts as secure and as made from its image.
    """
    kept = info.attributes
    internet = kept.get(INTERNET)
    return Attributes(
        template=kept.get(TEMPLATE, info.image),
        alias=kept.get(ALIAS),
        secure=kept.get(SECURE) != _NO,
        public_traffic=info.ports == "open",
        mask_host=kept.get(MASK_HOST),
        https_ports=ports_of(kept.get(HTTPS_PORTS, "")),
        internet=None if internet is None else internet == _YES,
        network=kept.get(NETWORK),
        idempotency=kept.get(IDEMPOTENCY),
    )
