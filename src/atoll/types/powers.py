"""What a sandbox could do at worst, as one value for a person who decides about it."""

from __future__ import annotations

from typing import Literal

import msgspec

from atoll.types.delegation import Delegation
from atoll.types.limits import Limits
from atoll.types.sandboxes import Ports

ReachKind = Literal["public", "names", "addresses", "private", "host", "sandbox"]
"""Every public name or address; some names; some public ranges; ranges that are not public; this host; sandboxes."""


class Reach(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True, omit_defaults=True):
    """Where a rule lets a sandbox send something, at worst.

    Args:
        kind: What lies there.
        text: All of this as a sentence.
        rule: The index of the rule. None is a preset's, or the mode ``observe``.
        hosts: Names and patterns of names. Empty means any destination of the kind.
        addresses: Ranges in which the address must lie. Empty means any of the kind.
        ports: Numbers and ranges such as ``8000-8100``. Empty means every port.
        methods: The only HTTP methods. Empty means any.
        inspected: Only HTTP passes, and each request is looked into.
        conditional: Only requests pass that meet more conditions than the methods.
        limited: A limit bounds how much passes.
        approvals: How many people must approve each request first.
        secrets: Names of the secrets that are put into the requests.
        unless: What earlier rules refuse of it, or ask about first, as phrases.
    """

    kind: ReachKind
    text: str = ""
    rule: int | None = None
    hosts: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    inspected: bool = False
    conditional: bool = False
    limited: bool = False
    approvals: int = 0
    secrets: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()


class SecretPower(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True, omit_defaults=True):
    """A secret that a sandbox uses without seeing it. Its value is nowhere here.

    Args:
        name: Its name, as the policy has it.
        text: All of this as a sentence.
        hosts: Where the sandbox's rules send it.
        bound_to: The only hosts that may ever get it. Empty means that policies decide.
        approvals: How many people must approve each request with it, by the laxest rule.
        usable: Whether it is sent at all. A canary, or a secret that does not exist, is not.
    """

    name: str
    text: str
    hosts: tuple[str, ...] = ()
    bound_to: tuple[str, ...] = ()
    approvals: int = 0
    usable: bool = True


class VolumePower(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True, omit_defaults=True):
    """A volume that a sandbox reads, and perhaps writes.

    Args:
        path: Where it is inside.
        volume_id: Its id.
        name: Its name.
        text: All of this as a sentence.
        read_only: Whether every write through this mount fails.
        quota_mib: How much disk it may use; None is no quota.
        others: How many other sandboxes mount it now.
    """

    path: str
    volume_id: str
    name: str
    text: str = ""
    read_only: bool = False
    quota_mib: int | None = None
    others: int = 0


class Powers(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """What a sandbox could do at worst, by its settings of now. Programs inside may do far less.

    Whoever may change its settings may change its powers: ``held_by`` says who that is.

    Args:
        sandbox_id: Its id.
        name: Its name.
        team: Its team.
        delegation: For whom it acts, and what it may do at most: less than its settings, perhaps.
        network: The preset's name, or ``policy``.
        observes: The policy only observes: everything public passes, and nobody is asked.
        unplugged: It is cut off now, and reaches nothing until somebody replugs it.
        anywhere: It reaches some place where anybody may have a server.
        reaches: Where it may send something, in the order of the rules. Each is already within the ceiling.
        ceiling: What the team's ceiling lets through in all; None is no ceiling.
        proxy: The proxy on the way out, ``host:port``; None is none.
        passthrough: Names whose TLS is never opened.
        secrets: The secrets that its rules send.
        models: The models that it may use, and what it may spend on them, as sentences.
        canaries: How many fake secrets its team has: to send one unplugs it.
        volumes: The volumes that it mounts.
        ports: Who reaches its ports by a server.
        ports_text: The same as a sentence.
        listens: The ports of its services.
        limits: The limits in force. None is no limit.
        runs: How long it may run, as sentences.
        wakes: What wakes it from sleep, as sentences.
        held_by: Who may use, copy and change it, and who answers for it, as sentences.
        hooks: The events around its sleep at which the host runs programs of its user, which hear of it.
        warnings: What a reviewer should look at, as sentences.
    """

    sandbox_id: str
    name: str | None
    team: str | None
    network: str
    delegation: Delegation | None = None
    observes: bool = False
    unplugged: bool = False
    anywhere: bool = False
    reaches: tuple[Reach, ...] = ()
    ceiling: tuple[Reach, ...] | None = None
    proxy: str | None = None
    passthrough: tuple[str, ...] = ()
    secrets: tuple[SecretPower, ...] = ()
    models: tuple[str, ...] = ()
    canaries: int = 0
    volumes: tuple[VolumePower, ...] = ()
    ports: Ports = "open"
    ports_text: str = ""
    listens: tuple[int, ...] = ()
    limits: Limits = Limits()
    runs: tuple[str, ...] = ()
    wakes: tuple[str, ...] = ()
    held_by: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
