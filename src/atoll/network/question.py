"""Asks what the wire would do with a connection and a request on it, without making them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from atoll.errors import EdgeError
from atoll.network.resolver import ResolveError
from atoll.policy import plain_host
from atoll.types import EgressVerdict

if TYPE_CHECKING:
    from atoll.network.egress import Outside
    from atoll.network.inspection import Grant, Inspection


async def ask_about(
    inspection: Inspection,
    outside: Outside,
    grant: Grant | None,
    request: Mapping[str, Any],
    host: str,
    port: int,
) -> EgressVerdict:
    """Return what a request would get. The edge judges it; here is only found out what it has to know.

    As on the wire, a name is resolved only after it has been judged by itself.

    Args:
        inspection: The edge.
        outside: Resolves the name as for a guest's connection.
        grant: The rules; None is everything public, without rules.
        request: As the edge reads it.
        host: A name, or an address.
        port: The port.

    Raises:
        EdgeError: The edge does not answer.
    """
    name = plain_host(host)
    if name is None:
        verdict = await inspection.judge(grant, _destination(outside, "", port, [host]), request)
    else:
        verdict = await inspection.judge(grant, _destination(outside, name, port, []), request)
        if verdict is None:
            try:
                addresses = await outside.resolver.addresses(name)
            except ResolveError as error:
                return EgressVerdict(action="deny", reason=str(error))
            verdict = await inspection.judge(grant, _destination(outside, name, port, addresses), request)
    if verdict is None:
        raise EdgeError("the process that judges requests asks for addresses that it has")
    return verdict


def _destination(outside: Outside, name: str, port: int, addresses: list[str]) -> dict[str, Any]:
    known = [{"address": address, "own": outside.owns(address)} for address in addresses]
    return {"name": name, "port": port, "addresses": known}
