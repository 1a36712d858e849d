"""Has the links of sandboxes enforce the sandboxes' policies, and cuts them."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import msgspec

from atoll.errors import AtollError, UnsupportedError
from atoll.network import Grant, ask_about
from atoll.policy import (
    EVERYTHING,
    allows,
    ceiling_of,
    check_ceiling,
    check_policy,
    policy_of,
)
from atoll.types import EgressDecision, EgressPolicy, EgressVerdict, Policy, Rule

if TYPE_CHECKING:
    from atoll.network import Inspection, Link, Relay
    from atoll.supervisor.lifecycle.package_registries import PackageRegistries
    from atoll.supervisor.state.alarms import Alarms
    from atoll.supervisor.state.decisions import DecisionLog
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.rows import SandboxRow
    from atoll.supervisor.state.sandbox import Sandbox
    from atoll.supervisor.tenants.models import Models
    from atoll.supervisor.tenants.proxy_passwords import ProxyPasswords
    from atoll.supervisor.tenants.secrets import Secrets
    from atoll.supervisor.tenants.teams import Teams
    from atoll.types import Delegation

_log = logging.getLogger(__name__)
ReachSandbox = Callable[[str | None, str, int], Awaitable[socket.socket]]


async def _reach_none(team: str | None, ref: str, port: int) -> socket.socket:
    raise ConnectionRefusedError(
        f"the supervisor starts, and connects to no sandbox yet, nor to {ref}:{port}"
    )


class EgressControl:
    """Sets the policies of links.

    Args:
        inventory: The sandboxes, whose links learn of a change of their team.
        teams: The teams, for their ceilings.
        secrets: The secrets that rules put into requests, and the canaries.
        passwords: Seals and opens the passwords of upstream proxies.
        models: The models that sandboxes may use.
        decisions: Keeps the decisions.
        alarms: Has sandboxes unplugged.
        inspection: Judges requests; None on a host that cannot.
        relay: Resolves names as for connections of guests.
        registries: The hosts that ``packages`` allows.
        clock: Returns Unix seconds, by which delegations end.

    Attributes:
        reach: Connects a sandbox of a team to a port of another one, by its name or id.
    """

    def __init__(
        self,
        *,
        inventory: Inventory,
        teams: Teams,
        secrets: Secrets,
        passwords: ProxyPasswords,
        models: Models,
        decisions: DecisionLog,
        alarms: Alarms,
        inspection: Inspection | None,
        relay: Relay,
        registries: PackageRegistries,
        clock: Callable[[], float],
    ) -> None:
        self._inventory = inventory
        self._teams = teams
        teams.follow(self._enforce_again)
        self._secrets = secrets
        self._passwords = passwords
        secrets.follow(lambda team, _: self._enforce_again(team))
        self._models = models
        models.follow(self._offer_models)
        self._decisions = decisions
        self._alarms = alarms
        self._inspection = inspection
        self._relay = relay
        self._registries = registries
        self._clock = clock
        # Beside the sandboxes' own: a wake or a rollback has a link before its sandbox has it.
        self._rows: WeakKeyDictionary[Link, SandboxRow] = WeakKeyDictionary()
        self.reach: ReachSandbox = _reach_none
        self._cut: set[str] = set()

    async def start(self) -> None:
        """Take over an earlier supervisor's judge of requests. Call this before a sandbox is adopted."""
        if self._inspection is not None:
            self._inspection.models.offer(self._models.document())
            await self._inspection.start()

    def forget_others(self) -> None:
        """Judge requests only for sandboxes that this supervisor knows. Call this when all are adopted."""
        if self._inspection is not None:
            self._inspection.forget_others()

    async def aclose(self, *, stay: bool) -> None:
        """End the judge of requests, or leave it to the next supervisor."""
        if self._inspection is not None:
            await self._inspection.aclose(stay=stay)

    async def look_ahead(self) -> None:
        """Find the package registries if a policy needs them: nothing else goes on while a link waits for them."""
        networks = [sandbox.row.network for sandbox in self._inventory.sandboxes()]
        ceilings = [team.ceiling for team in self._teams.list()]
        await self._registries.found_for([*networks, *ceilings])

    async def check(self, network: EgressPolicy, team: str | None) -> None:
        """Refuse a policy that cannot be enforced for a sandbox of a team.

        Raises:
            InvalidSpecError: A rule is invalid, can never match, or sends a secret where it may not go.
            SecretNotFoundError: The team has no secret of a name.
            UnsupportedError: It has rules about requests, and nothing here can judge them; or the registries of
                packages are not known.
        """
        if isinstance(network, Policy):
            check_policy(network)
            for rule in network.rules:
                for secret in _secrets_of(rule):
                    self._secrets.check_hosts(team, secret, rule.hosts)
        await self._registries.found_for([network])
        self._check_means(network, self._rules(network))

    async def check_ceiling(self, ceiling: EgressPolicy) -> None:
        """Refuse a policy that cannot be enforced as a ceiling.

        Raises:
            InvalidSpecError: A rule is invalid, can never match, or does more than a ceiling may.
            UnsupportedError: It has rules about requests, and nothing here can judge them; or the registries of
                packages are not known.
        """
        await self._registries.found_for([ceiling])
        rules = self._ceiling_rules(ceiling)
        check_ceiling(rules)
        self._check_means(ceiling, rules)

    def _check_means(self, network: EgressPolicy, rules: Policy | None) -> None:
        if network == "packages" and rules is not None and not rules.rules:
            raise UnsupportedError(
                "no package registry is known on this host",
                hint="name them in ATOLL_PACKAGE_HOSTS, separated by spaces",
            )
        if self._inspection is None and rules is not None and any(rule.inspects for rule in rules.rules):
            raise UnsupportedError(
                "this supervisor cannot look into requests", hint="use rules of names and ports only"
            )

    async def storable(
        self, network: EgressPolicy, team: str | None, before: EgressPolicy | None = None
    ) -> EgressPolicy:
        """Return a checked policy as its row has it: the password of its proxy is sealed.

        Args:
            before: The stored policy that this one replaces.

        Raises:
            InvalidSpecError: The password is masked, and ``before`` has none for that proxy and user.
            HostError: The key of the secrets cannot be made or used.
        """
        return await self._passwords.seal(network, team, before)

    def govern(self, link: Link, row: SandboxRow) -> None:
        """Apply the row's policy and its team's current ceiling to the sandbox's link.

        A sandbox whose delegation has ended, or is not for the network, gets no network. From now on the decisions
        are recorded.

        Raises:
            OSError: The sandbox is unplugged, and its link cannot be cut.
        """
        sandbox_id = row.sandbox_id
        self._rows[link] = row
        link.guest.reach = lambda ref, port: self.reach(row.team, ref, port)
        link.guest.follow(
            lambda decision: self._decisions.add(
                sandbox_id, (with_secrets(decision, row.network),), row.delegation_uid, row.team
            ),
            lambda reason: self._ring(sandbox_id, reason),
        )
        if row.unplugged is not None or sandbox_id in self._cut:
            link.cut()
        self._enforce(link, row)

    def _enforce(self, link: Link, row: SandboxRow) -> None:
        network = self._passwords.open(self._allowed(row.network, row.delegation), row.team)
        rules, ceiling = self._both(network, row.team)
        # A rule by name needs the edge for plain HTTP, where each request says which host it is for. So do models.
        if self._inspection is not None and ((rules is not None and rules.rules) or row.models is not None):
            grant = self._grant(EVERYTHING if rules is None else rules, row.team, ceiling, row.delegation)
            if allows(row.delegation, "network", self._clock()):
                grant = replace(grant, models=self._models.rights_of(row))
            link.inspect(self._inspection, row.sandbox_id, grant)
        link.set_policy(network, self._registries.hosts_for(network), ceiling=ceiling)

    def enforce(self, sandbox: Sandbox) -> None:
        """Have a sandbox's links do again what its row and its delegation say now, open connections included."""
        for link in self._links(sandbox.sandbox_id):
            self._enforce(link, sandbox.row)

    def cut(self, sandbox_id: str) -> None:
        """Let nothing pass to or from a sandbox any more, on any link that it has or gets, until ``mend``.

        Raises:
            OSError: The kernel refused to cut a link. Its relay passes nothing all the same.
        """
        self._cut.add(sandbox_id)
        refusals: list[OSError] = []
        for link in self._links(sandbox_id):
            try:
                link.cut()
            except OSError as error:
                refusals.append(error)
        if refusals:
            raise refusals[0]

    async def mend(self, sandbox_id: str) -> None:
        """Undo ``cut``.

        Raises:
            OSError: The kernel refused it.
        """
        self._cut.discard(sandbox_id)
        for link in self._links(sandbox_id):
            await link.mend()

    def settled(self, sandbox_id: str) -> None:
        """From now on rely on the row of a sandbox, which says that it is unplugged."""
        self._cut.discard(sandbox_id)

    def forget(self, sandbox_id: str) -> None:
        """Forget the counts for the limits of a sandbox that is gone for ever."""
        if self._inspection is not None:
            self._inspection.erase(sandbox_id)

    async def hear(self) -> None:
        """Have all been noted that was decided until now, about connections and about requests."""
        edge = () if self._inspection is None else (self._inspection.hear(),)
        await asyncio.gather(self._relay.hear(), *edge)

    async def judge(
        self,
        network: EgressPolicy,
        team: str | None,
        request: Mapping[str, Any],
        host: str,
        port: int,
        delegation: Delegation | None = None,
    ) -> EgressVerdict:
        """Return the verdict on a request.

        Args:
            network: The policy to judge by.
            team: The team whose ceiling judges too.
            request: As the edge reads it.
            host: The host of its address. A name that the policy knows is resolved.
            port: The port of its address.
            delegation: What the sandbox acts under; None is not to be looked at.

        Raises:
            EdgeError: The edge does not answer.
            UnsupportedError: This supervisor has no edge to judge requests.
        """
        if self._inspection is None:
            raise UnsupportedError("this supervisor cannot judge", hint="start one that has the edge")
        rules, ceiling = self._both(self._allowed(network, delegation), team)
        # The grant includes the secrets: a missing secret has the request refused.
        grant = None if rules is None else self._grant(rules, team, ceiling, delegation)
        return await ask_about(self._inspection, self._relay, grant, request, host, port)

    def _allowed(self, network: EgressPolicy, delegation: Delegation | None) -> EgressPolicy:
        return network if allows(delegation, "network", self._clock()) else "none"

    def _grant(
        self, rules: Policy, team: str | None, ceiling: Policy | None, delegation: Delegation | None
    ) -> Grant:
        """The rules with the secrets that they need. A secret that cannot be had is left out: the edge refuses."""
        values: dict[str, str] = {}
        bound: dict[str, tuple[str, ...]] = {}
        names = {secret for rule in rules.rules for secret in _secrets_of(rule)}
        for name in names if allows(delegation, "secrets", self._clock()) else ():
            try:
                bound |= self._secrets.bound_for(team, [name])
                values |= self._secrets.values_for(team, [name])
            except AtollError as error:
                _log.warning("a policy cannot use its secret: %s", error)
        try:
            canaries = tuple(self._secrets.canaries_for(team).values())
        except AtollError as error:
            _log.warning("no canary can be looked for: %s", error)
            canaries = ()
        return Grant(rules, values, canaries, bound, ceiling)

    def _offer_models(self) -> None:
        """Have the edge and all sandboxes know the models as they are now."""
        if self._inspection is not None:
            self._inspection.models.offer(self._models.document())
        for team in {row.team for row in self._rows.values()}:
            self._enforce_again(team)

    def _enforce_again(self, team: str | None) -> None:
        """Give the sandboxes of a team its secrets and its ceiling as they are now, without a restart."""
        rows = {sandbox.sandbox_id: sandbox.row for sandbox in self._inventory.sandboxes()}
        # Links of sandboxes that are being made or woken count too: they already have their policies.
        for link, row in list(self._rows.items()):
            if link.is_open and row.team == team:
                self._enforce(link, rows.get(row.sandbox_id, row))

    def _rules(self, network: EgressPolicy) -> Policy | None:
        return policy_of(network, self._registries.hosts_for(network))

    def _both(self, network: EgressPolicy, team: str | None) -> tuple[Policy | None, Policy | None]:
        """The rules of a policy, and of the ceiling over it. Without a ceiling, no rules are everything public."""
        rules, ceiling = self._rules(network), self._teams.ceiling_of(team)
        if ceiling is None:
            return rules, None
        return EVERYTHING if rules is None else rules, self._ceiling_rules(ceiling)

    def _ceiling_rules(self, ceiling: EgressPolicy) -> Policy:
        return ceiling_of(ceiling, self._registries.hosts_for(ceiling))

    def _ring(self, sandbox_id: str, reason: str) -> None:
        # At once, and also for a sandbox that is only being made.
        try:
            self.cut(sandbox_id)
        except OSError as error:
            _log.error("the network of sandbox %s cannot be cut: %s", sandbox_id, error)
        self._alarms.ring(sandbox_id, reason)

    def _links(self, sandbox_id: str) -> list[Link]:
        return [link for link, row in [*self._rows.items()] if row.sandbox_id == sandbox_id and link.is_open]


def with_secrets(decision: EgressDecision, network: EgressPolicy) -> EgressDecision:
    """A decision with the secrets that its rule put into the request. The edge tells only the rule."""
    if decision.action != "allow" or decision.rule is None or decision.ceiling or not decision.method:
        return decision
    rules = network.rules if isinstance(network, Policy) else ()
    if decision.rule >= len(rules) or not (names := _secrets_of(rules[decision.rule])):
        return decision
    return msgspec.structs.replace(decision, secrets=tuple(sorted(names)))


def _secrets_of(rule: Rule) -> set[str]:
    """The names of the secrets that a rule sends."""
    return {secret for inject in rule.inject for secret in inject.secrets}
