"""Routes about the egress of sandboxes: the verdict on a request, and the decisions so far."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from atoll.errors import InvalidSpecError
from atoll.policy import plain, plain_host
from atoll.protocol import DecisionsPage, EgressTest, Registries
from atoll.supervisor.api.query import whole_number
from atoll.supervisor.api.reply import json_answer, read_body
from atoll.supervisor.lifecycle.egress_control import EgressControl
from atoll.supervisor.lifecycle.package_registries import PackageRegistries
from atoll.supervisor.logs import read_page
from atoll.supervisor.state.decisions import DecisionLog
from atoll.supervisor.state.inventory import Inventory
from atoll.supervisor.state.paths import Paths
from atoll.supervisor.state.rows import SandboxRow
from atoll.types import EgressDecision, EgressPolicy, EgressVerdict
from atoll.types.internal import from_json

_PORTS = {"http": 80, "https": 443}


def egress_routes(
    *,
    inventory: Inventory,
    paths: Paths,
    egress: EgressControl,
    registries: PackageRegistries,
    decisions: DecisionLog,
) -> list[Route]:
    """``/v1/egress/test``, and everything under ``/v1/sandboxes/REF/egress``."""

    async def test(request: Request) -> Response:
        wanted = await read_body(request, EgressTest)
        if wanted.network is None:
            raise InvalidSpecError("the test has no network", hint="give a policy, or name a sandbox")
        await egress.check(wanted.network, None)
        return json_answer(await _judged(egress, wanted.network, wanted))

    async def test_of(request: Request) -> Response:
        sandbox = inventory.sandbox(request.path_params["ref"])
        wanted = await read_body(request, EgressTest)
        row = sandbox.row
        return json_answer(await _judged(egress, wanted.network or row.network, wanted, row))

    async def registries_of(request: Request) -> Response:
        network = inventory.sandbox(request.path_params["ref"]).row.network
        found = await registries.by_client() if network == "packages" else {}
        return json_answer(Registries(clients={client: tuple(hosts) for client, hosts in found.items()}))

    async def made(request: Request) -> Response:
        path = paths.decisions(inventory.sandbox(request.path_params["ref"]).sandbox_id)
        offset = whole_number(request.query_params.get("offset", "0"), "offset")
        await egress.hear()
        decisions.flush()
        return json_answer(await asyncio.to_thread(_read_decisions, path, offset))

    one = "/v1/sandboxes/{ref}/egress"
    return [
        Route("/v1/egress/test", test, methods=["POST"]),
        Route(f"{one}/test", test_of, methods=["POST"]),
        Route(f"{one}/registries", registries_of),
        Route(f"{one}/decisions", made),
    ]


async def _judged(
    egress: EgressControl, network: EgressPolicy, wanted: EgressTest, row: SandboxRow | None = None
) -> EgressVerdict:
    parts = urlsplit(wanted.url)
    try:
        host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)
        if plain_host(host) is None:
            plain(host)
    except ValueError:
        host, port = "", 0
    if not host or not port:
        raise InvalidSpecError(
            f"{wanted.url[:100]!r} is no address of a server",
            hint="give one like https://example.com/path, or tcp://example.com:22",
        )
    request = {
        "scheme": parts.scheme,
        "method": wanted.method,
        "url": wanted.url,
        "headers": [list(pair) for pair in wanted.headers.items()],
        "body": None if wanted.body is None else base64.b64encode(wanted.body.encode()).decode(),
    }
    if row is None:
        return await egress.judge(network, None, request, host, port)
    return await egress.judge(network, row.team, request, host, port, row.delegation)


def _read_decisions(path: Path, offset: int) -> DecisionsPage:
    page = read_page(path, offset)
    whole, newline, rest = page.text.rpartition("\n")
    found = []
    for line in whole.splitlines():
        try:
            found.append(from_json(line, EgressDecision))
        except msgspec.MsgspecError:  # the oldest line was cut off
            continue
    return DecisionsPage(
        decisions=found, offset=page.offset - len(rest.encode()) if newline else offset, end=page.end
    )
