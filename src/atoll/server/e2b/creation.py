"""Makes new sandboxes from the requests of E2B's clients."""

from __future__ import annotations

import contextlib
import hashlib
import time
from dataclasses import dataclass
from typing import Any

import msgspec

from atoll.errors import ImageNotFoundError, SnapshotNotFoundError
from atoll.sdk import AsyncSandbox, AsyncSnapshots
from atoll.server.e2b import leases
from atoll.server.e2b.answers import Refusal
from atoll.server.e2b.attributes import IDEMPOTENCY, Attributes, read
from atoll.server.e2b.egress import egress_of, mask_of
from atoll.server.e2b.idempotency import KEEP_S, Idempotency
from atoll.server.e2b.network_views import kept_network, without_password
from atoll.server.e2b.origins import is_within
from atoll.server.e2b.sandbox_lookup import all_of
from atoll.server.e2b.template_source import TemplateSource, missing_source, missing_template, source_of
from atoll.server.e2b.transforms import NO_IDENTITY
from atoll.server.e2b.views import Views
from atoll.server.e2b.wire import NewSandbox, Sandbox
from atoll.types import EgressPolicy, Hosting, TeamInfo
from atoll.types.internal import one_source

_NO_PUBLIC_TRAFFIC = (
    "You cannot create a sandbox without public access "
    "unless you enable secure envd access via 'secure' flag."
)
WIDER = (
    "the network of a sandbox from this snapshot is the snapshot's: leave network out, or deny all traffic"
)


@dataclass(frozen=True)
class Creation:
    """Makes sandboxes.

    Args:
        views: Describes sandboxes to clients.
        idempotency: Remembers the sandboxes of requests that may be repeated.
    """

    views: Views
    idempotency: Idempotency

    async def create(
        self,
        team: TeamInfo,
        asked: NewSandbox,
        *,
        default_s: int,
        secure: bool = True,
        key: str | None = None,
    ) -> Sandbox:
        """Make a running sandbox.

        Args:
            team: The team that owns the sandbox.
            asked: The client's request.
            default_s: Seconds that it runs if the client names none.
            secure: Whether its agent asks for an access token.
            key: A repeated request with the same key gives the same sandbox.

        Raises:
            Refusal: The request is invalid, or asks for more than this server supports.
        """
        timeout_s = default_s if asked.timeout is None else asked.timeout
        most_s = team.quotas.ttl_s
        wanted: dict[str, Any] = {
            "lifecycle": leases.lease_of(asked, leases.bounded(timeout_s, most_s), most_s),
            "network": self._egress(asked),
            "metadata": asked.metadata,
            "volumes": _volumes(asked),
        }
        if asked.iam:
            raise Refusal(400, NO_IDENTITY)
        if key is None:
            return await self._make(team.name, asked, wanted, secure, None)
        mark = f"{key} {_fingerprint(asked, default_s)}"

        async def make() -> Sandbox:
            return await self._earlier(team.name, mark) or await self._make(
                team.name, asked, wanted, secure, mark
            )

        return await self.idempotency.once(team.name, key, mark, make)

    def _egress(self, asked: NewSandbox) -> EgressPolicy | None:
        """Return the egress policy asked for. None means the template's policy."""
        if asked.network is None and asked.allow_internet_access is None:
            return None
        return egress_of(asked.network, asked.allow_internet_access, self.views.opened)

    async def _make(
        self, team: str, asked: NewSandbox, wanted: dict[str, Any], secure: bool, mark: str | None
    ) -> Sandbox:
        source = await source_of(asked.template_id, team)
        wanted = {**wanted, "network": await _within(wanted["network"], source)}
        attributes = _attributes(asked, source, secure, mark)
        try:
            sandbox = await AsyncSandbox.create(
                one_source(image=source.image, snapshot=source.snapshot_id),
                env=asked.env_vars,
                hosting=Hosting(team=team, attributes=attributes.kept(), ports=attributes.ports),
                **wanted,
            )
        except (ImageNotFoundError, SnapshotNotFoundError):
            raise await missing_source(asked.template_id) from None
        with contextlib.closing(sandbox):
            return self.views.created(sandbox.id, attributes)

    async def _earlier(self, team: str, mark: str) -> Sandbox | None:
        """Return the sandbox that a request made before the server's last start."""
        key = mark.partition(" ")[0]
        for info in await all_of(team):
            kept = info.attributes.get(IDEMPOTENCY, "")
            if kept.partition(" ")[0] == key and time.time() - info.created_at < KEEP_S:
                if kept != mark:
                    raise Refusal(422, "this Idempotency-Key was used with another request")
                return self.views.created(info.sandbox_id, read(info))
        return None


async def _within(network: EgressPolicy | None, source: TemplateSource) -> EgressPolicy | None:
    """Return the policy of a new sandbox: a snapshot's sandbox gets the snapshot's policy or no network.

    Clients of E2B ask for the internet even if nobody wanted that, so this wish stands for the snapshot's
    policy too.

    Raises:
        Refusal: Another policy is asked for (403).
    """
    if source.snapshot_id is None or network in (None, "none"):
        return network
    try:
        parents = (await AsyncSnapshots.get(source.snapshot_id)).network
    except SnapshotNotFoundError:
        raise missing_template(source.template_id) from None
    if is_within(network, parents):
        return network
    if network == "internet":
        return None
    raise Refusal(403, WIDER)


def _attributes(asked: NewSandbox, source: TemplateSource, secure: bool, mark: str | None) -> Attributes:
    network = asked.network
    public = network is None or network.allow_public_traffic is not False
    if not public and not secure:
        raise Refusal(400, _NO_PUBLIC_TRAFFIC)
    return Attributes(
        template=source.template_id,
        alias=source.alias,
        secure=secure,
        public_traffic=public,
        mask_host=mask_of(network),
        https_ports=tuple(sorted({*(network.https_ports or ())})) if network is not None else (),
        internet=asked.allow_internet_access,
        network=kept_network(network),
        idempotency=mark,
    )


def _volumes(asked: NewSandbox) -> dict[str, str]:
    mounts = asked.volume_mounts or []
    volumes = {mount.path: mount.name for mount in mounts}
    if len(volumes) < len(mounts):
        raise Refusal(400, "two volumes cannot be mounted at one path")
    return volumes


def _fingerprint(asked: NewSandbox, default_s: int) -> str:
    # The fingerprint is stored in the clear, and would let somebody guess a short password.
    if asked.network is not None:
        asked = msgspec.structs.replace(asked, network=without_password(asked.network))
    return hashlib.sha256(msgspec.json.encode((asked, default_s), order="deterministic")).hexdigest()[:32]
