"""Bodies of the supervisor's HTTP API, all JSON.

``GET /hello``, ``GET /list``, ``POST /suspend-all`` and ``POST /stop`` and their bodies never change. So a
new client can always suspend an old supervisor's sandboxes and replace it. Everything else is under ``/v1``.
"""

from __future__ import annotations

from typing import Literal
from urllib.parse import quote, unquote

import msgspec

from atoll.protocol.error_bodies import ErrorBody
from atoll.types import (
    DelegationSpec,
    EgressDecision,
    EgressPolicy,
    Lifecycle,
    Limits,
    ModelAccess,
    Progress,
    Quotas,
)
from atoll.types.internal import check_number

PROTOCOL_VERSION = 1
# A token that a client chooses for a request that makes sandboxes. `DELETE /v1/requests/TOKEN` says that the
# client was interrupted before it got them.
REQUEST_HEADER = "atoll-request"
# The caller, quoted as a part of a URL is. Lists and the audit log show it; it decides nothing.
CALLER_HEADER = "atoll-caller"
_CALLER_CHARACTERS = 200


def told_caller(header: str | None) -> str | None:
    """Return the caller, as the header of a request says."""
    return unquote(header or "", errors="replace")[:_CALLER_CHARACTERS].strip() or None


def caller_header(caller: str) -> tuple[str, str]:
    """Return the header that names the caller."""
    text = caller.strip()[:_CALLER_CHARACTERS].strip()
    return CALLER_HEADER, quote(text, safe=" ,/:@()", errors="replace")


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to ``GET /hello``. Never changes."""

    product: str
    version: str
    protocol: int
    pid: int
    home: str


class RemoteHello(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of ``atoll serve`` to ``GET /atoll/hello``. ``domain`` is that of its sandboxes' addresses."""

    version: str
    protocol: int
    team: str
    domain: str


class ListedSandbox(msgspec.Struct, frozen=True, kw_only=True):
    """A row of ``GET /list``. Never changes."""

    sandbox_id: str
    name: str | None
    state: str


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to ``GET /list``. Never changes."""

    sandboxes: list[ListedSandbox]


class SuspendedAll(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to ``POST /suspend-all``. ``failed`` has a message for each sandbox id. Never changes."""

    suspended: list[str]
    failed: dict[str, str]


class DrainRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/drain``. ``timeout_s`` bounds the wait; None waits for ever."""

    timeout_s: float | None = None

    def check(self) -> DrainRequest:
        """Return this request if it is valid.

        Raises:
            InvalidSpecError: The time is not positive.
        """
        if self.timeout_s is not None:
            check_number("timeout_s", self.timeout_s, least=0.001, hint="give seconds")
        return self


class FsckRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/fsck``: whether to repair data that has a second copy."""

    repair: bool = False


class UnplugRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/sandboxes/REF/unplug`` and ``POST /v1/unplug-all``: why, for people."""

    reason: str | None = None


class UnpluggedAll(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to ``POST /v1/unplug-all``. ``failed`` has a message for each sandbox id."""

    unplugged: list[str]
    failed: dict[str, str]


class EmergencyUnplugged(msgspec.Struct, frozen=True, kw_only=True):
    """The result of unplugging a sandbox whose supervisor did not answer.

    Args:
        cut: Whether its network is cut, or it has none because it sleeps.
        frozen: Whether its guest is frozen, or none runs.
        marked: Whether its supervisor will find a mark on the disk, and keep it unplugged.
        problems: The failed steps, as sentences for people.
    """

    sandbox_id: str
    name: str | None
    cut: bool = False
    frozen: bool = False
    marked: bool = False
    problems: list[str] = []


class ForkRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/sandboxes/REF/fork``: how many copies, from 1 to 100.

    Each copy gets a new lease under ``lifecycle``, or under the original's lifecycle if it is None. ``names``
    has one name for each copy, in order, or is empty. Each acts under a child of what the original acts under.
    With ``models`` each has these, and a budget of its own.
    """

    count: int = 1
    lifecycle: Lifecycle | None = None
    names: list[str] = []
    delegation: DelegationSpec | None = None
    models: ModelAccess | None = None


class SuspendRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/sandboxes/REF/suspend``. Without ``memory`` only the disk is kept."""

    memory: bool = True


class ResumeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/sandboxes/REF/resume`` and ``…/wake``.

    ``ttl_s`` is the length of the new lease; None takes the lifecycle's. The lease of a
    running sandbox is extended to that length, never shortened. Without ``memory`` a stored checkpoint is
    discarded, and the sandbox boots from its disk.
    """

    ttl_s: float | None = None
    memory: bool = True


class LeaseRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/sandboxes/REF/lease``: the lease ends in this many seconds.

    None means no lease, 0 means now. With ``extend_only`` a lease that ends later, or never, stays as it is.
    """

    ttl_s: float | None
    extend_only: bool = False


class KeepAwakeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/sandboxes/REF/keep-awake``: how long the sandbox counts as active."""

    seconds: float


class NetworkRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/sandboxes/REF/network``: the sandbox's egress policy from now on.

    ``attributes`` are stored with it. None removes an attribute. All others stay.
    """

    network: EgressPolicy
    attributes: dict[str, str | None] = {}


class EgressTest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/sandboxes/REF/egress/test`` and ``/v1/egress/test``: a request for the verdict.

    ``network`` replaces the sandbox's own policy for the verdict.
    """

    method: str
    url: str
    headers: dict[str, str] = {}
    body: str | None = None
    network: EgressPolicy | None = None


class DecisionsPage(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to ``GET /v1/sandboxes/REF/egress/decisions?offset=N``: decisions from byte N on.

    ``offset`` is where to read next, ``end`` where they end now.
    """

    decisions: list[EgressDecision]
    offset: int
    end: int


class Registries(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to ``GET /v1/sandboxes/REF/egress/registries``: the hosts that its policy ``packages`` allows.

    ``clients`` has the hosts by the package client of the host that uses them. Under another policy it is empty.
    """

    clients: dict[str, tuple[str, ...]]


class LimitsRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/sandboxes/REF/limits``: the limits to change."""

    limits: Limits
    best_effort: bool = False


class RollbackRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/sandboxes/REF/rollback``: id or name of a snapshot."""

    snapshot: str


class DiffRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/sandboxes/REF/diff``: a sandbox or snapshot to compare with, and the paths."""

    base: str
    paths: list[str] = []


class AskRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/sandboxes/REF/asks``: a question to people, and how long it waits, in seconds."""

    title: str
    body: str = ""
    deadline_s: float = 300.0


class PromoteRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/sandboxes/REF/promote``: id or name of the winner, and the snapshot's name."""

    winner: str
    name: str | None = None


class SnapshotRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/sandboxes/REF/snapshots``."""

    name: str | None = None
    comment: str = ""
    build_id: str | None = None


class TeamRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/teams``."""

    name: str
    quotas: Quotas = Quotas()


class CeilingRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``PUT /v1/teams/NAME/ceiling``: the bounds of its sandboxes; None means no ceiling."""

    ceiling: EgressPolicy | None


class KeyRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/keys``: the team, a name, and the key's life in seconds; None means no end."""

    team: str
    name: str
    expires_in_s: float | None = None


class KeyCheck(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/keys/check``. The key is not in the path, because paths are logged."""

    key: str


class VolumeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/volumes``."""

    name: str
    team: str | None = None
    quota_mib: int | None = None


class VolumeQuotaRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``PUT /v1/volumes/REF/quota``; None means no quota."""

    quota_mib: int | None


class AttributesRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/volumes/REF/entry``: the attributes of an entry to change.

    None leaves an attribute unchanged.
    """

    uid: int | None = None
    gid: int | None = None
    mode: int | None = None


class VerifyRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/snapshots/verify`` and ``/v1/verified-images``: ids or names.

    An empty list means all.
    """

    names: list[str] = []


class LogsPage(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to ``GET /v1/sandboxes/REF/logs?offset=N``: text from byte N on.

    ``offset`` is where to read next, ``end`` where the log ends now.
    """

    text: str
    offset: int
    end: int


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A check of ``doctor``. ``remedy`` is one command or sentence."""

    name: str
    level: Literal["ok", "note", "warning", "error"]
    message: str
    remedy: str | None = None


class DoctorReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of ``doctor``. ``fit`` is False if no sandbox could run."""

    fit: bool
    findings: list[Finding]


class Leftover(msgspec.Struct, frozen=True, kw_only=True):
    """A leftover of a crash on the host, which nothing owns.

    ``kind`` is process, mount, directory, cgroup or image. Image stands for images without a name, layers of
    no image, and downloads that will not continue.
    """

    kind: str
    name: str
    size_bytes: int = 0


class StreamLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of an answer requested with ``accept: application/x-ndjson``.

    Progress comes first, then one result or error. The HTTP status is 200 as soon as the stream begins; an
    error is its last line.
    """

    progress: Progress | None = None
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: ErrorBody | None = None
