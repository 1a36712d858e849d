"""Asks for the verdict on a connection and a request, without making either."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from atoll.errors import EdgeError
from atoll.network.relay_calls import RelayError
from atoll.policy import plain_host
from atoll.types import EgressVerdict

if TYPE_CHECKING:
    from atoll.network.inspection import Grant, Inspection
    from atoll.network.relay import Relay


async def ask_about(
    inspection: Inspection,
    relay: Relay,
    grant: Grant | None,
    request: Mapping[str, Any],
    host: str,
    port: int,
) -> EgressVerdict:
    """Return the verdict on a request. The edge judges it; this only finds out the facts for that.

    As on the wire, a name is resolved only after a verdict on the name alone.

    Args:
        inspection: The edge.
        relay: Resolves the name as for a guest's connection.
        grant: The rules; None allows everything public, without rules.
        request: As the edge reads it.
        host: A name, or an address.
        port: The port.

    Raises:
        EdgeError: The edge does not answer.
    """
    name = plain_host(host)
    verdict = None
    if name is not None:
        verdict = await inspection.judge(grant, {"name": name, "port": port, "addresses": []}, request)
    if verdict is None:
        try:
            known = (await relay.ask({"op": "resolve", "name": name or host}))["content"]["addresses"]
        except RelayError as error:
            return EgressVerdict(action="deny", reason=str(error))
        except (OSError, TimeoutError) as error:
            raise EdgeError(f"the relay resolves no names now: {error}") from error
        destination = {"name": name or "", "port": port, "addresses": known}
        verdict = await inspection.judge(grant, destination, request)
    if verdict is None:
        raise EdgeError("the process that judges requests asks for addresses that it has")
    return verdict
