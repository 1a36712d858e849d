"""What a reviewer of a sandbox's powers should look at."""

from __future__ import annotations

from collections.abc import Iterator

from atoll.policy.ranges import network_of
from atoll.policy.reach_text import listed
from atoll.types import Powers, Reach

# Ranges of this size and more have servers that anybody may rent.
_WIDE_V4, _WIDE_V6 = 16, 48
_READING = frozenset({"GET", "HEAD", "OPTIONS"})


def is_anywhere(reach: Reach) -> bool:
    """Whether anybody may have a server there: by every name, every name of a top-level domain, or a wide range."""
    if reach.kind == "public":
        return True
    if reach.kind == "addresses":
        return any(_is_wide(text) for text in reach.addresses)
    return reach.kind == "names" and not reach.addresses and any(_is_top_level(host) for host in reach.hosts)


def warnings_of(powers: Powers) -> Iterator[str]:
    """Combinations that a reviewer would want to see, as sentences."""
    yield from _network(powers)
    yield from _secrets(powers)
    yield from _inside(powers)
    shared = [volume for volume in powers.volumes if volume.others and not volume.read_only]
    for volume in shared:
        yield f"It writes to the volume {volume.name}, which other sandboxes mount."
    if powers.team is not None and powers.ports == "open":
        yield "Its ports are open to whoever knows its id, also where it may reach nothing itself."


def _network(powers: Powers) -> Iterator[str]:
    if powers.observes:
        yield "The policy only observes: everything public passes, and no rule asks or refuses."
    reading = [reach for reach in powers.reaches if reach.methods and _READING.issuperset(reach.methods)]
    if reading:
        yield "Requests that only read (GET, HEAD) still carry data out: in their addresses and headers."
    if powers.passthrough and any(reach.kind in ("public", "names") for reach in powers.reaches):
        yield f"TLS to {listed(powers.passthrough)} is never opened: atoll sees no request in it, nor for which site."
    if powers.proxy is not None and powers.reaches:
        yield f"The proxy {powers.proxy} resolves names: it decides where they lead, also in its own network."


def _secrets(powers: Powers) -> Iterator[str]:
    usable = [secret for secret in powers.secrets if secret.usable]
    if usable and powers.anywhere:
        names = listed([secret.name for secret in usable])
        yield f"It reaches places that anybody may own, and uses the secret {names}: what it reads can leave."
    for secret in usable:
        if not secret.bound_to:
            yield f"The secret {secret.name} is bound to no hosts: only the policy keeps it from others."
        wild = [host for host in secret.hosts if host.startswith("*.")]
        if wild:
            yield f"The secret {secret.name} goes to every name that {listed(wild)} stands for."


def _inside(powers: Powers) -> Iterator[str]:
    by_kind = {kind: [r for r in powers.reaches if r.kind == kind] for kind in ("host", "sandbox", "private")}
    if ports := [port for reach in by_kind["host"] for port in reach.ports or ("all",)]:
        yield f"Ports of the host's loopback interface are exposed to it: {listed(ports)}."
    if by_kind["sandbox"]:
        yield "It reaches other sandboxes: through them it may do what they can do."
    if ranges := [text for reach in by_kind["private"] for text in reach.addresses]:
        yield f"Ranges that are not public are opened to it: {listed(ranges)}."


def _is_wide(text: str) -> bool:
    network = network_of(text)
    return network.prefixlen <= (_WIDE_V4 if network.version == 4 else _WIDE_V6)


def _is_top_level(pattern: str) -> bool:
    return pattern.startswith("*.") and "." not in pattern[2:]
