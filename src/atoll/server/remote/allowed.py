"""The supervisor's operations for clients on other machines, with the rules that bind each to its team.

An operation outside this table does not exist for a client. Each operation of the supervisor is either here
or in ``CLOSED_TO_CLIENTS``, with the reason; a test compares both with the supervisor's own list.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import msgspec

from atoll.errors import AskNotFoundError, InvalidSpecError, SandboxNotFoundError
from atoll.protocol import (
    DiffRequest,
    EgressTest,
    FinishRequest,
    NetworkRequest,
    PromoteRequest,
    PublishRequest,
    RecordRequest,
    RollbackRequest,
    SecretRequest,
    SnapshotRequest,
    TagsRequest,
    TemplateRequest,
    VolumeRequest,
)
from atoll.sdk import AsyncAsks, AsyncSnapshots, AsyncTemplates
from atoll.server.e2b.attributes import check_attributes
from atoll.server.e2b.origins import is_within, may_get
from atoll.server.remote.asked import Asked
from atoll.server.remote.build_specs import IMAGE
from atoll.server.remote.network import check_remote
from atoll.types import Answer, Policy, SandboxSpec, SnapshotInfo
from atoll.types.internal import users_attributes

Rule = Callable[[Asked], Awaitable[None]]


@dataclass(frozen=True)
class Operation:
    """An operation that clients may use.

    Args:
        method: The HTTP method.
        path: The supervisor's path, with names in braces.
        rules: The checks of a request, in order, which also bind it to the team.
        query: The parameters of the query part to pass on.
        streamed: Whether the body may have any size, and passes on as it arrives.
        passed: Whether to pass it on at all; if not, the server has a route of its own.
    """

    method: str
    path: str
    rules: tuple[Rule, ...]
    query: tuple[str, ...] = ()
    streamed: bool = False
    passed: bool = True


async def _sandbox(asked: Asked) -> None:
    asked.params["ref"] = (await asked.sandbox(asked.params["ref"])).sandbox_id


async def _snapshot(asked: Asked) -> None:
    asked.params["ref"] = (await asked.snapshot(asked.params["ref"])).snapshot_id


async def _team(asked: Asked) -> None:
    asked.query["team"] = [asked.team.name]


async def _filtered(asked: Asked) -> None:
    if "sandbox" in asked.query:
        asked.query["sandbox"] = [(await asked.sandbox(asked.query["sandbox"][-1])).sandbox_id]


async def _request(asked: Asked) -> None:
    asked.params["token"] = asked.token(asked.params["token"])


async def _spec(asked: Asked) -> None:
    spec = asked.read(SandboxSpec)
    check_remote(spec.network, asked.opened)
    check_attributes(users_attributes(spec.attributes))
    changes: dict[str, object] = {"team": asked.team.name}
    parent: SnapshotInfo | None = None
    if spec.template is not None and spec.image is None and spec.from_snapshot is None:
        # resolve the name here: a tag that moves later brings no other network
        found = await AsyncTemplates.resolve(spec.template, asked.team.name)
        changes |= {"template": None, "image": found.image, "from_snapshot": found.snapshot_id}
        if found.snapshot_id is not None:
            parent = await AsyncSnapshots.get(found.snapshot_id)
    elif spec.from_snapshot is not None:
        parent = await asked.snapshot(spec.from_snapshot)
        changes["from_snapshot"] = parent.snapshot_id
    if parent is not None and spec.network is not None and not is_within(spec.network, parent.network):
        raise _wider()
    if spec.image is not None:
        await _check_image(spec.image, asked.team.name)
    asked.write(msgspec.structs.replace(spec, **changes))


def _wider() -> InvalidSpecError:
    return InvalidSpecError(
        "a sandbox of this snapshot or template reaches what the snapshot's sandbox reached, or nothing",
        hint='leave network out, or give network="none"',
    )


async def _check_image(image: str, team: str) -> None:
    """Refuse anything but an image name. A path would name files of the server's machine.

    Raises:
        InvalidSpecError: The text cannot be the name of an image.
        NotFoundError: The server has no such image, and pulls none of that name.
    """
    if not IMAGE.fullmatch(image):
        raise InvalidSpecError(
            f"{image[:64]!r} is not the name of an image",
            hint="a server builds from no directory of its own; build a template",
        )
    await AsyncTemplates.resolve(image, team)


async def _network(asked: Asked) -> None:
    wanted = asked.read(NetworkRequest)
    check_remote(wanted.network, asked.opened)
    check_attributes(users_attributes({name: value or "" for name, value in wanted.attributes.items()}))
    if not await may_get(await asked.sandbox(asked.params["ref"]), wanted.network):
        raise _wider()


async def _test(asked: Asked) -> None:
    check_remote(asked.read(EgressTest).network, asked.opened)


async def _rollback(asked: Asked) -> None:
    found = await asked.snapshot(asked.read(RollbackRequest).snapshot)
    asked.write(RollbackRequest(snapshot=found.snapshot_id))


async def _promote(asked: Asked) -> None:
    wanted = asked.read(PromoteRequest)
    winner = await asked.sandbox(wanted.winner)
    asked.write(msgspec.structs.replace(wanted, winner=winner.sandbox_id))


async def _diff(asked: Asked) -> None:
    wanted = asked.read(DiffRequest)
    try:
        base = (await asked.sandbox(wanted.base)).sandbox_id
    except SandboxNotFoundError:
        base = (await asked.snapshot(wanted.base)).snapshot_id
    asked.write(msgspec.structs.replace(wanted, base=base))


async def _one_ask(asked: Asked) -> None:
    if not _ASK.fullmatch(asked.params["ask"]):
        raise _no_ask()


def _no_ask() -> AskNotFoundError:
    return AskNotFoundError("there is no such ask", hint="`atoll asks` lists those that wait")


async def _ask_answer(asked: Asked) -> None:
    """Hold a rule that an answer writes to what the client may write itself."""
    if not asked.read(Answer).always:
        return
    ask = await AsyncAsks.get(asked.params["ask"])
    if ask.team != asked.team.name:
        raise _no_ask()
    info = await asked.sandbox(ask.sandbox_id)
    if ask.always is None or not isinstance(info.network, Policy):
        return  # the supervisor says that no rule can allow it
    check_remote(Policy(rules=(ask.always,)), asked.opened)
    wanted = msgspec.structs.replace(info.network, rules=(ask.always, *info.network.rules))
    if not await may_get(info, wanted):
        raise InvalidSpecError(
            "the policy of this sandbox is that of its snapshot, and no answer changes it",
            hint="approve once, or for some time",
        )


async def _take(asked: Asked) -> None:
    wanted = asked.read(SnapshotRequest)
    if wanted.build_id is not None:
        raise InvalidSpecError("a client takes no snapshot for a build", hint="leave build_id out")


async def _template(asked: Asked) -> None:
    wanted, team = asked.read(TemplateRequest), asked.team.name
    asked.write(msgspec.structs.replace(wanted, team=team, name=wanted.name.removeprefix(f"{team}/")))


async def _record(asked: Asked) -> None:
    wanted, team = asked.read(RecordRequest), asked.team.name
    name = wanted.name.removeprefix(f"{team}/") if wanted.name is not None else None
    asked.write(msgspec.structs.replace(wanted, team=team, name=name))


async def _tags(asked: Asked) -> None:
    asked.write(msgspec.structs.replace(asked.read(TagsRequest), team=asked.team.name))


async def _publish(asked: Asked) -> None:
    asked.write(msgspec.structs.replace(asked.read(PublishRequest), team=asked.team.name))


async def _build(asked: Asked) -> None:
    asked.params["id"] = (await asked.build(asked.params["id"])).build_id


async def _over(asked: Asked) -> None:
    wanted = asked.read(FinishRequest)
    if wanted.state == "ready" or wanted.snapshot_id is not None or wanted.image is not None:
        raise InvalidSpecError("the server says when a build is ready", hint="a client can only end it")


async def _volume(asked: Asked) -> None:
    asked.write(msgspec.structs.replace(asked.read(VolumeRequest), team=asked.team.name))


async def _secret(asked: Asked) -> None:
    asked.write(msgspec.structs.replace(asked.read(SecretRequest), team=asked.team.name))


_ASK = re.compile("[0-9a-f]{16}")
_ONE = "/v1/sandboxes/{ref}"
_VOLUME = "/v1/volumes/{ref}"


def _of_sandbox(method: str, rest: str, *rules: Rule, query: Sequence[str] = ()) -> Operation:
    return Operation(method, f"{_ONE}{rest}", (_sandbox, *rules), tuple(query))


OPERATIONS: tuple[Operation, ...] = (
    Operation("POST", "/v1/sandboxes", (_spec,)),
    Operation("GET", "/v1/sandboxes", (_team,), ("state", "metadata", "limit", "cursor")),
    _of_sandbox("GET", ""),
    _of_sandbox("DELETE", ""),
    _of_sandbox("POST", "/pause"),
    _of_sandbox("POST", "/resume"),
    _of_sandbox("POST", "/suspend"),
    _of_sandbox("POST", "/wake"),
    _of_sandbox("POST", "/unplug"),
    _of_sandbox("POST", "/replug"),
    _of_sandbox("POST", "/lease"),
    _of_sandbox("POST", "/keep-awake"),
    _of_sandbox("POST", "/hold", query=("binds",)),
    _of_sandbox("POST", "/network", _network),
    _of_sandbox("POST", "/fork"),
    _of_sandbox("POST", "/rollback", _rollback),
    _of_sandbox("POST", "/promote", _promote),
    _of_sandbox("POST", "/diff", _diff),
    _of_sandbox("POST", "/services"),
    _of_sandbox("GET", "/services"),
    _of_sandbox("DELETE", "/services/{name}"),
    _of_sandbox("POST", "/snapshots", _take),
    _of_sandbox("POST", "/template", _record),
    _of_sandbox("POST", "/limits"),
    _of_sandbox("GET", "/stats"),
    _of_sandbox("GET", "/stats/history", query=("start", "end")),
    _of_sandbox("GET", "/logs", query=("offset",)),
    _of_sandbox("GET", "/powers"),
    _of_sandbox("POST", "/egress/test", _test),
    _of_sandbox("GET", "/egress/registries"),
    _of_sandbox("GET", "/egress/decisions", query=("offset",)),
    _of_sandbox("POST", "/asks"),
    _of_sandbox("POST", "/told"),
    Operation("GET", "/v1/asks", (_team, _filtered), ("sandbox",)),
    Operation("GET", "/v1/asks/follow", (_team, _filtered), ("sandbox",)),
    Operation("GET", "/v1/asks/{ask}", (_one_ask, _team)),
    Operation("POST", "/v1/asks/{ask}/answer", (_one_ask, _ask_answer, _team)),
    Operation(
        "GET",
        "/v1/audit",
        (_team,),
        ("after", "newest", "limit", "sandbox", "act", "delegation", "since", "until"),
    ),
    Operation("GET", "/v1/alerts", (_team, _filtered), ("sandbox", "after", "newest")),
    Operation("GET", "/v1/alerts/follow", (_team, _filtered), ("sandbox", "after", "newest")),
    Operation("DELETE", "/v1/requests/{token}", (_request,)),
    Operation("GET", "/v1/snapshots", (_team, _filtered), ("sandbox",)),
    Operation("GET", "/v1/snapshots/{ref}", (_snapshot,)),
    Operation("GET", "/v1/snapshots/{ref}/digest", (_snapshot,)),
    Operation("DELETE", "/v1/snapshots/{ref}", (_snapshot,)),
    Operation("POST", "/v1/snapshots/{ref}/template", (_snapshot, _record)),
    Operation("POST", "/v1/volumes", (_volume,)),
    Operation("GET", "/v1/volumes", (_team,)),
    Operation("GET", _VOLUME, (_team,)),
    Operation("DELETE", _VOLUME, (_team,)),
    Operation("PUT", f"{_VOLUME}/quota", (_team,)),
    Operation("GET", f"{_VOLUME}/entry", (_team,), ("path",)),
    Operation("POST", f"{_VOLUME}/entry", (_team,), ("path",)),
    Operation("DELETE", f"{_VOLUME}/entry", (_team,), ("path",)),
    Operation("GET", f"{_VOLUME}/dir", (_team,), ("path", "depth")),
    Operation("POST", f"{_VOLUME}/dir", (_team,), ("path", "parents", "mode", "uid", "gid")),
    Operation("GET", f"{_VOLUME}/file", (_team,), ("path",)),
    Operation(
        "PUT",
        f"{_VOLUME}/file",
        (_team,),
        ("path", "parents", "replace", "mode", "uid", "gid"),
        streamed=True,
    ),
    Operation("GET", "/v1/disk", (_team,)),
    Operation("POST", "/v1/templates", (_template,)),
    Operation("GET", "/v1/templates", (_team,)),
    Operation("POST", "/v1/templates/{ref}/tag", (_tags,)),
    Operation("POST", "/v1/templates/{ref}/untag", (_tags,)),
    Operation("POST", "/v1/templates/{ref}/publish", (_publish,)),
    Operation("GET", "/v1/templates/{ref}", (_team,)),
    Operation("DELETE", "/v1/templates/{ref}", (_team,), passed=False),
    Operation("GET", "/v1/builds/{id}", (_build,)),
    Operation("POST", "/v1/builds/{id}/finish", (_build, _over)),
    Operation("GET", "/v1/resolved", (_team,), ("ref",)),
    Operation("GET", "/v1/models/usage", (_team, _filtered), ("sandbox", "since")),
    Operation("POST", "/v1/secrets", (_secret,)),
    Operation("GET", "/v1/secrets", (_team,)),
    Operation("GET", "/v1/secrets/{ref}", (_team,)),
    Operation("POST", "/v1/secrets/{ref}", (_team,)),
    Operation("DELETE", "/v1/secrets/{ref}", (_team,)),
)

_BUILDS = "the server carries builds out, see remote/builds.py"
_OPERATOR = "only the operator does it, on the server's machine"
CLOSED_TO_CLIENTS: dict[tuple[str, str], str] = {
    ("POST", "/v1/unplug-all"): _OPERATOR,
    ("POST", f"{_ONE}/defaults"): _BUILDS,
    ("DELETE", "/v1/steps"): "it erases the steps of all teams",
    ("POST", "/v1/builds/{id}/begin"): _BUILDS,
    ("POST", "/v1/builds/{id}/cached"): _BUILDS,
    ("POST", "/v1/builds/{id}/steps"): _BUILDS,
    ("POST", "/v1/egress/test"): "it judges with the registries and secrets of the home",
    ("POST", "/v1/snapshots/verify"): "it reads whole disks, which takes minutes of the host's time",
    ("POST", "/v1/verified-images"): _OPERATOR,
    ("GET", "/v1/images"): "images belong to the home",
    ("GET", "/v1/images/{name}"): "images belong to the home",
    ("POST", "/v1/images/{name}"): "images belong to the home",
    ("DELETE", "/v1/images/{name}"): _OPERATOR,
    ("POST", "/v1/drain"): _OPERATOR,
    ("GET", "/v1/drain"): _OPERATOR,
    ("DELETE", "/v1/drain"): _OPERATOR,
    ("POST", "/v1/fsck"): _OPERATOR,
    ("GET", "/v1/upgrade"): _OPERATOR,
    ("GET", "/v1/leftovers"): _OPERATOR,
    ("DELETE", "/v1/leftovers"): _OPERATOR,
    ("POST", "/v1/audit/verify"): "the log is that of all teams",
    ("GET", "/v1/metrics"): "they tell of all teams, and have a token of their own",
    ("GET", "/v1/models"): _OPERATOR,
    ("PUT", "/v1/models"): _OPERATOR,
    ("GET", "/v1/models/prices"): _OPERATOR,
    ("POST", "/v1/teams"): _OPERATOR,
    ("GET", "/v1/teams"): _OPERATOR,
    ("GET", "/v1/teams/{name}"): _OPERATOR,
    ("PUT", "/v1/teams/{name}/quotas"): _OPERATOR,
    ("PUT", "/v1/teams/{name}/ceiling"): _OPERATOR,
    ("GET", "/v1/teams/{name}/use"): _OPERATOR,
    ("DELETE", "/v1/teams/{name}"): _OPERATOR,
    ("POST", "/v1/keys"): _OPERATOR,
    ("GET", "/v1/keys"): _OPERATOR,
    ("DELETE", "/v1/keys/{key_id}"): _OPERATOR,
    ("POST", "/v1/keys/check"): _OPERATOR,
}
