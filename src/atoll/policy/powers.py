"""Adds up what a sandbox could do at worst. Pure: the supervisor gives the facts.

It is computed where the ceiling, the bindings of secrets and the other users of a volume are known. So the
answer is the same here and over a server. It tells a team its ceiling: each refusal of the ceiling names its
rule already, and `egress.test` tells what any request would get.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from atoll.policy.ceiling import ceiling_of
from atoll.policy.delegating import allows
from atoll.policy.power_warnings import is_anywhere, warnings_of
from atoll.policy.presets import policy_of
from atoll.policy.proxies import proxy_address
from atoll.policy.reach_text import listed
from atoll.policy.reaches import reaches_of, within_ceiling
from atoll.types import (
    EgressPolicy,
    ModelBudgetUse,
    Policy,
    Powers,
    Reach,
    SandboxInfo,
    SecretInfo,
    SecretPower,
    VolumePower,
)

_ENDS = {
    "kill": "it is erased",
    "suspend": "it is suspended with its memory",
    "stop": "its processes end and its disk stays",
}


@dataclass(frozen=True, kw_only=True)
class PowerFacts:
    """What the supervisor knows of a sandbox and its surroundings.

    Args:
        info: The sandbox. Its policy is checked.
        ceiling: The ceiling of its team.
        registries: The hosts that ``packages`` stands for.
        secrets: The secrets of its team.
        volumes: Its volumes, without texts.
        idle_s: After how many idle seconds it is suspended; None is never.
        hooks: The events around its sleep at which the host runs programs of its user.
        now_s: The time, in Unix seconds, at which its delegation may have ended.
        models: Patterns of the models that it may use now, by its own setting and its team's.
        budgets: The budgets that it spends on them, its own first.
    """

    info: SandboxInfo
    ceiling: EgressPolicy | None = None
    registries: tuple[str, ...] = ()
    secrets: Sequence[SecretInfo] = ()
    volumes: Sequence[VolumePower] = ()
    idle_s: float | None = None
    hooks: tuple[str, ...] = ()
    now_s: float = 0.0
    models: tuple[str, ...] = ()
    budgets: Sequence[ModelBudgetUse] = ()


def powers_of(facts: PowerFacts) -> Powers:
    """Return what the sandbox could do at worst, by its settings of now."""
    info = facts.info
    network = info.network if allows(info.delegation, "network", facts.now_s) else "none"
    policy = network if isinstance(network, Policy) else Policy()
    reaches = reaches_of(policy_of(network, facts.registries))
    if not allows(info.delegation, "secrets", facts.now_s):
        reaches = tuple(reach for reach in reaches if not reach.secrets)  # such requests are refused
    ceiling = None
    if facts.ceiling is not None:
        ceiling = reaches_of(ceiling_of(facts.ceiling, facts.registries))
        reaches = within_ceiling(reaches, ceiling)
    found = Powers(
        sandbox_id=info.sandbox_id,
        name=info.name,
        team=info.team,
        delegation=info.delegation,
        network="policy" if isinstance(network, Policy) else network,
        observes=policy.mode == "observe",
        unplugged=info.unplugged is not None,
        anywhere=any(map(is_anywhere, reaches)),
        reaches=reaches,
        ceiling=ceiling,
        proxy=_proxy(policy),
        passthrough=policy.passthrough,
        secrets=_secrets(reaches, facts.secrets),
        models=_models(facts) if allows(info.delegation, "network", facts.now_s) else (),
        canaries=sum(secret.canary for secret in facts.secrets),
        volumes=tuple(_told(volume) for volume in facts.volumes),
        ports=info.ports,
        ports_text=_ports_text(info),
        listens=tuple(sorted({each.port for each in info.services if each.port is not None})),
        limits=info.limits_in_force,
        runs=tuple(_runs(info, facts.idle_s)),
        wakes=tuple(_wakes(info)),
        held_by=tuple(_held_by(facts, reaches)),
        hooks=facts.hooks,
    )
    return msgspec.structs.replace(found, warnings=tuple(warnings_of(found)))


def _models(facts: PowerFacts) -> tuple[str, ...]:
    if not facts.models:
        return ()
    limits = [text for budget in facts.budgets if (text := _limit(budget))]
    said = [f"It uses {listed(facts.models)}."]
    return (*said, *limits) if limits else (*said, "Nothing limits what it spends on them.")


def _limit(budget: ModelBudgetUse) -> str:
    parts = [] if budget.usd is None else [f"${budget.usd:,.2f}"]
    parts += [] if budget.tokens is None else [f"{budget.tokens:,} tokens"]
    per = "a day" if budget.per == "day" else "in all"
    owner = {
        "sandbox": "It and its copies spend",
        "delegation": "All under a delegation of its chain spend",
        "key": "All that its API key has made spends",
        "team": "Its team spends",
        "home": "The home spends",
    }
    return f"{owner[budget.budget.partition(':')[0]]} at most {' and '.join(parts)} {per}." if parts else ""


def _proxy(policy: Policy) -> str | None:
    if policy.proxy is None:
        return None
    place = proxy_address(policy.proxy)
    return f"{place.host}:{place.port}"


def _secrets(reaches: Sequence[Reach], known: Sequence[SecretInfo]) -> tuple[SecretPower, ...]:
    by_name = {secret.name: secret for secret in known}
    names = dict.fromkeys(name for reach in reaches for name in reach.secrets)
    return tuple(_secret(name, reaches, by_name) for name in names)


def _secret(name: str, reaches: Sequence[Reach], known: Mapping[str, SecretInfo]) -> SecretPower:
    by = [reach for reach in reaches if name in reach.secrets]
    hosts = tuple(dict.fromkeys(host for reach in by for host in reach.hosts))
    secret = known.get(name.lower())
    if secret is None or secret.canary:
        why = "does not exist" if secret is None else "is a canary"
        text = f"The secret {name} {why}, so requests that need it are refused."
        return SecretPower(name=name, text=text, hosts=hosts, usable=False)
    approvals = min(reach.approvals for reach in by)
    asks = {0: "without asking", 1: "each approved by a person", 2: "each approved by two people"}
    bound = f"; it is bound to {listed(secret.hosts)}" if secret.hosts else "; it is bound to no hosts"
    return SecretPower(
        name=name,
        text=f"Requests to {listed(hosts)} carry the secret {name}, {asks[approvals]}{bound}.",
        hosts=hosts,
        bound_to=secret.hosts,
        approvals=approvals,
    )


def _told(volume: VolumePower) -> VolumePower:
    does = "reads" if volume.read_only else "reads and writes"
    quota = "" if volume.quota_mib is None else f", up to {volume.quota_mib} MiB"
    more = "s mount" if volume.others != 1 else " mounts"
    others = (
        f"; {volume.others} other sandbox{'e' if volume.others != 1 else ''}{more} it too"
        if volume.others
        else ""
    )
    text = f"It {does} the volume {volume.name} at {volume.path}{quota}{others}."
    return msgspec.structs.replace(volume, text=text)


def _ports_text(info: SandboxInfo) -> str:
    if info.team is None:
        return "No server shows its ports. The user of this machine reaches them."
    if info.ports == "open":
        return "Whoever knows its id reaches every port of it by a server, without a key."
    return "By a server, only clients with its traffic token or a signed link reach its ports."


def _runs(info: SandboxInfo, idle_s: float | None) -> Iterator[str]:
    how = info.lifecycle
    if how.ttl_s is not None:
        yield f"Each run lasts at most {how.ttl_s:g} s unless somebody extends it; then {_ENDS[how.on_expiry]}."
    elif info.ends_at is not None:
        yield f"Its lease has an end; then {_ENDS[how.on_expiry]}."
    else:
        yield "It has no lease: it runs until somebody ends it."
    if info.limits_in_force.lifetime_s is not None:
        yield f"It is killed {info.limits_in_force.lifetime_s:g} s after its creation."
    if idle_s is not None:
        yield f"After {idle_s:g} s without activity it is suspended; a program that works keeps it awake."
    else:
        yield "It is never suspended for being idle."


def _wakes(info: SandboxInfo) -> Iterator[str]:
    how = info.lifecycle
    if not how.auto_resume:
        yield "Only a resume wakes it."
        return
    yield "Any use wakes it, and so do times for which programs inside have asked."
    if how.wake_on_data:
        yield "Data on a connection that it has opened wakes it."
    planned = [f"{each.name} ({each.schedule})" for each in info.services if each.schedule is not None]
    if planned:
        yield f"It wakes for its scheduled services: {listed(planned)}."


def _held_by(facts: PowerFacts, reaches: Sequence[Reach]) -> Iterator[str]:
    info = facts.info
    who = "The user of this machine"
    if info.team is not None:
        who = f"Every key of the team {info.team}, by a server, and the user of this machine"
    forks = allows(info.delegation, "fork", facts.now_s)
    copies = "snapshot it and fork it" if forks else "and snapshot it; nobody may fork it"
    yield f"{who} may run anything in it, read its files, wake it, {copies}."
    within = " within the team's ceiling" if facts.ceiling is not None else ""
    yield f"The same may change its policy{within}{', and a fork has the same powers' if forks else ''}."
    most = max((reach.approvals for reach in reaches), default=0)
    if most:
        two = ", of whom two must agree where a rule says so" if most > 1 else ""
        yield f"The same people answer when a rule asks{two}."
