"""What a sandbox may reach: rules about connections, and about the requests in them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal, get_args

import msgspec

from atoll.errors import InvalidSpecError

Preset = Literal["none", "packages", "web-read-only", "internet"]
"""Policies with a name: nothing; reading from package registries; GET and HEAD of public sites; everything public."""

Action = Literal["allow", "ask", "deny", "unplug"]
Protocol = Literal["tcp", "http"]
Place = Literal["header", "basic", "query", "path", "json"]

PASSWORD_MASK = "***"
"""Stands for the password of a proxy where a policy is shown."""

ASK_DEADLINE_MOST_S = 3600
"""The most seconds that an ask waits."""

# A brace that is written twice is taken first: it stands for itself.
PLACEHOLDER = re.compile(r"\{\{|\}\}|\{(?P<name>[^{}]*)\}")
_SCHEME = re.compile(r"[a-z0-9+.-]*://")

HOST_NAME = "host.atoll.internal"
"""The name under which a rule exposes ports of the host's loopback interface to a sandbox."""

SANDBOX_DOMAIN = "sandbox.atoll.internal"
"""Below it, under its name or id, a rule exposes ports of another sandbox of the same team."""


class Inject(
    msgspec.Struct,
    frozen=True,
    repr_omit_defaults=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """Where secrets are put into a request, outside the sandbox.

    Whatever the sandbox itself wrote at that place is removed.

    Args:
        secret: The name of the secret that ``{}`` stands for, see ``Secrets``. Empty if ``format`` names all of
            its secrets.
        into: A ``header``, the password of ``basic`` authentication, a ``query`` parameter, a literal text in
            the ``path``, or a field of a ``json`` body.
        key: The header's or parameter's name, the user name of basic authentication, the text to replace in
            the path, or the dotted path of the field.
        format: What is sent, with ``{}`` for the secret, and ``{NAME}`` for any secret by its name. A brace of the
            text itself is written twice.
    """

    secret: str = ""
    into: Place = "header"
    key: str = "authorization"
    format: str = "{}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """The names of the secrets that are sent, each once, in the order of the format."""
        named = (found["name"] for found in PLACEHOLDER.finditer(self.format))
        return tuple(dict.fromkeys(name or self.secret for name in named if name is not None))


class RateLimit(
    msgspec.Struct,
    frozen=True,
    repr_omit_defaults=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """How much may pass by one rule, for each sandbox. None is no limit.

    Args:
        requests: Requests in ``per_s`` seconds. One more is answered with 429.
        per_s: The length of that time, in seconds.
        bytes_s: Bytes a second, in both directions together. What is above it waits.
        total_bytes: Bytes in both directions together, after which connections are cut.
    """

    requests: int | None = None
    per_s: float = 60.0
    bytes_s: int | None = None
    total_bytes: int | None = None


class Mcp(
    msgspec.Struct,
    frozen=True,
    repr_omit_defaults=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """Which messages of the Model Context Protocol match. Each message of a request must match.

    Args:
        methods: Patterns of methods such as ``tools/call``. Empty means any.
        tools: Patterns of tool names. Empty means any; otherwise only calls of tools match.
        arguments: Patterns by the dotted path of a tool's argument.
    """

    methods: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    arguments: dict[str, tuple[str, ...]] = {}


class AskTerms(
    msgspec.Struct,
    frozen=True,
    repr_omit_defaults=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """How a rule with the action ``ask`` asks about a request.

    Args:
        deadline_s: A request without an answer is denied after so many seconds, from 1 to 3600.
        approvals: How many have to approve it, 1 or 2. Of two, each uses another key, or one is this machine's
            user.
    """

    deadline_s: float = 300.0
    approvals: int = 1


class Rule(
    msgspec.Struct,
    frozen=True,
    repr_omit_defaults=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """One rule of a policy. The first rule that matches decides.

    In patterns ``*`` stands for any text; in paths it stays within a segment, and ``**`` does not.

    Args:
        action: ``allow``, ``deny``, ``ask``: hold each request until somebody has answered, or ``unplug``: cut
            the sandbox off and freeze it for a person to look at.
        name: Shown in refusals and in the log.
        hosts: Names: ``example.com`` is that name alone, ``*.example.com`` every name below it, ``*`` every
            name. Empty means any destination, named or not.
        addresses: Ranges that the address must lie in, also after a name was resolved. Only such a rule
            opens private ranges.
        ports: Numbers and ranges such as ``"8000-8100"``. Empty means any; a rule about requests means 80
            and 443 then.
        protocol: ``http`` requires HTTP, plain or in TLS, and looks into each request. ``tcp`` is any.
        methods: HTTP methods. This and what follows down to ``mcp`` make it a rule about requests.
        paths: Patterns of the normalised path, without the query.
        query: Patterns by parameter; each parameter must be there once.
        headers: Patterns by header; each header must be there once.
        max_body_bytes: Longer bodies do not match.
        json: Patterns by the dotted path of a value in a JSON body of up to 256 KiB.
        mcp: Messages of the Model Context Protocol.
        ask: How ``ask`` asks.
        set_headers: Headers to set in requests that the rule lets pass.
        remove_headers: Headers to remove from them.
        inject: Secrets to put into them.
        limit: How much may pass.
    """

    action: Action = "allow"
    name: str = ""
    hosts: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    ports: tuple[int | str, ...] = ()
    protocol: Protocol = "tcp"
    methods: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    query: dict[str, tuple[str, ...]] = {}
    headers: dict[str, tuple[str, ...]] = {}
    max_body_bytes: int | None = None
    json: dict[str, tuple[str, ...]] = {}
    mcp: Mcp | None = None
    ask: AskTerms | None = None
    set_headers: dict[str, str] = {}
    remove_headers: tuple[str, ...] = ()
    inject: tuple[Inject, ...] = ()
    limit: RateLimit | None = None

    @property
    def may_pass(self) -> bool:
        """Whether what the rule matches passes, perhaps only after an answer."""
        return self.action in ("allow", "ask")

    @property
    def conditional(self) -> bool:
        """Whether the rule matches some requests and not others."""
        given = (self.methods, self.paths, self.query, self.headers, self.json)
        return any(given) or self.max_body_bytes is not None or self.mcp is not None

    @property
    def changes(self) -> bool:
        """Whether the rule changes or limits what it lets pass."""
        return bool(self.set_headers or self.remove_headers or self.inject) or self.limit is not None

    @property
    def inspects(self) -> bool:
        """Whether requests must be looked into for this rule."""
        return self.protocol == "http" or self.conditional or self.changes or self.action == "ask"


class UpstreamProxy(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A proxy between the host and the outside. It resolves the names that are reached through it.

    Args:
        url: ``http://`` (CONNECT) or ``socks5://``, with a port, and with a user and password if it wants them.
            The password is stored sealed and shown as ``***``, which stands for it when a policy is set again.
        hosts: Names to be reached through it. Empty means all names and addresses.
        addresses: Ranges, not public, in which the proxy itself may be. It is refused in any other such range,
            and on this host unless its exact address is here.
    """

    url: str
    hosts: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()

    def masked(self) -> UpstreamProxy:
        """Return it with ``***`` for the password."""
        before, at, place = self.url.rpartition("@")
        scheme = _SCHEME.match(before)
        begin = scheme.end() if scheme else 0
        user, colon, _ = before[begin:].partition(":")
        return (
            msgspec.structs.replace(self, url=f"{before[:begin]}{user}:{PASSWORD_MASK}@{place}")
            if colon
            else self
        )

    def __repr__(self) -> str:
        return f"UpstreamProxy({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        shown = self.masked()
        values = [(name, getattr(shown, name)) for name in self.__struct_fields__]
        return [(name, value) for name, value in values if value]


class Policy(
    msgspec.Struct,
    frozen=True,
    repr_omit_defaults=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """What a sandbox may reach. What no rule allows is denied.

    Args:
        rules: In the order in which they are tried.
        mode: ``observe`` lets through what the rules would deny, and notes it.
        passthrough: Names whose TLS is never opened. Rules about requests do not apply to them.
        proxy: A proxy on the way out.
    """

    rules: tuple[Rule, ...] = ()
    mode: Literal["enforce", "observe"] = "enforce"
    passthrough: tuple[str, ...] = ()
    proxy: UpstreamProxy | None = None

    @classmethod
    def allow(cls, *hosts: str, ports: Iterable[int | str] = ()) -> Policy:
        """Return a policy that allows these names, such as ``"example.com"`` and ``"*.example.org"``, only.

        Without a name it allows nothing.
        """
        return cls(rules=(Rule(hosts=tuple(hosts), ports=tuple(ports)),) if hosts else ())

    @classmethod
    def expose_host(cls, *ports: int) -> Rule:
        """Return a rule that lets a sandbox reach these ports of the host's loopback interface.

        Inside, the host's name is ``host.atoll.internal``.

        Raises:
            InvalidSpecError: No port is given.
        """
        if not ports:
            raise InvalidSpecError(
                "no port of the host is given", hint="name each port: Policy.expose_host(8080)"
            )
        return Rule(hosts=(HOST_NAME,), ports=tuple(ports))

    @classmethod
    def expose_sandbox(cls, sandbox: str, *ports: int) -> Rule:
        """Return a rule that lets a sandbox reach these ports of another sandbox of the same team.

        Inside, the other one is called by its name or id: ``db.sandbox.atoll.internal``. A connection wakes it,
        as a client's does.

        Args:
            sandbox: The other one's name or id.
            ports: Ports of servers inside it. The guest agent's own port stays shut.

        Raises:
            InvalidSpecError: No port is given.
        """
        if not ports:
            raise InvalidSpecError(
                f"no port of the sandbox {sandbox} is given",
                hint='name each port: Policy.expose_sandbox("db", 5432)',
            )
        return Rule(hosts=(f"{sandbox}.{SANDBOX_DOMAIN}",), ports=tuple(ports))

    def with_rules(self, *rules: Rule) -> Policy:
        """Return this policy with more rules before its own."""
        return msgspec.structs.replace(self, rules=(*rules, *self.rules))


EgressPolicy = Preset | Policy
"""A preset's name, or a policy."""


def check_network(network: object) -> None:
    """Refuse what is neither a preset's name nor a policy.

    Raises:
        InvalidSpecError: It is neither.
    """
    if isinstance(network, Policy) or network in get_args(Preset):
        return
    known = ", ".join(repr(name) for name in get_args(Preset))
    raise InvalidSpecError(
        f"network is {repr(network)[:60]}",
        hint=f"give {known}, or a Policy such as Policy.allow('example.com')",
    )


Scheme = Literal["tcp", "http", "https", "dns"]


class EgressDecision(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True, omit_defaults=True):
    """A decision about a connection, a request or a name.

    Args:
        at: When it was made first, in Unix seconds.
        action: What the policy says.
        rule: The index of the deciding rule; None if no rule matched.
        host: The name, or the address where none was given.
        port: The port; 0 for the name alone.
        scheme: What was spoken, as far as it is known.
        method: The method of the request, or the type of the DNS question.
        path: The normalised path of the request.
        reason: Why it was denied.
        observed: The policy only observes: it was let through all the same.
        ceiling: The ceiling of the sandbox's team decided, and ``rule`` is one of it.
        secrets: The names of the secrets that were put into the request.
        count: How many equal ones it stands for.
        until: When the last of these was, in Unix seconds, if no supervisor ran then; else None.
    """

    at: float
    action: Action
    rule: int | None
    host: str
    port: int
    scheme: Scheme
    method: str = ""
    path: str = ""
    reason: str = ""
    observed: bool = False
    ceiling: bool = False
    secrets: tuple[str, ...] = ()
    count: int = 1
    until: float | None = None


class EgressVerdict(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """What a request would get.

    Args:
        action: What the policy says. A name that the policy knows is resolved for that, as for a connection.
        rule: The index of the deciding rule; None if no rule matches.
        reason: Why, as text for people.
        changes: What would be changed in the request.
        observed: The policy only observes: the request would pass all the same.
        ceiling: The ceiling of the sandbox's team decides, and ``rule`` is one of it.
    """

    action: Action
    rule: int | None = None
    reason: str = ""
    changes: list[str] = []
    observed: bool = False
    ceiling: bool = False
