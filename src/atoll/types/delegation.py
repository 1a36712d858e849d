"""Delegations: for whom a sandbox acts, what it may do and spend at most, and until when."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from atoll.errors import InvalidSpecError
from atoll.types.given import check_choice, check_kind, check_number, check_text, texts_of
from atoll.types.models import ModelBudget

Scope = Literal["network", "secrets", "volumes", "fork"]
"""What a sandbox may do: reach anything at all, have secrets put into its requests, mount volumes, be copied."""

SCOPES: tuple[Scope, ...] = get_args(Scope)
"""All scopes, in the order in which every delegation has them."""

_NAME_CHARACTERS = 200
_MOST_S = 1e9


class DelegationSpec(
    msgspec.Struct,
    frozen=True,
    repr_omit_defaults=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """What a new sandbox or a copy is to act under. It can only have less than its parent.

    Args:
        on_behalf_of: The person or agent that it works for, in up to 200 printable characters. None takes the
            parent's.
        scopes: All that it may do, of ``"network"``, ``"secrets"``, ``"volumes"`` and ``"fork"``. None takes the
            parent's.
        expires_in_s: Seconds until it ends. None means that it ends with its parent.
        models: How much may be spent on models under it and its children together. What is spent counts for its
            parent too. None adds no budget.
        parent_uid: The delegation of a sandbox of the same team, of which this is a child. None is the caller's
            own, or that of the snapshot or of the sandbox that is copied.
    """

    on_behalf_of: str | None = None
    scopes: tuple[Scope, ...] | None = None
    expires_in_s: float | None = None
    models: ModelBudget | None = None
    parent_uid: str | None = None

    def __post_init__(self) -> None:
        if self.on_behalf_of is not None:
            hint = f"give up to {_NAME_CHARACTERS} printable characters"
            check_text("on_behalf_of", self.on_behalf_of, hint=hint)
            if len(self.on_behalf_of) > _NAME_CHARACTERS or not self.on_behalf_of.isprintable():
                raise InvalidSpecError(f"on_behalf_of is {self.on_behalf_of!r}"[:300], hint=hint)
        if self.scopes is not None:
            for scope in texts_of("scopes", self.scopes, hint="give a list of scopes"):
                check_choice("a scope", scope, SCOPES)
        if self.expires_in_s is not None:
            hint = "give seconds, more than 0"
            check_number("expires_in_s", self.expires_in_s, least=0.001, most=_MOST_S, hint=hint)
        if self.models is not None:
            check_kind("models", self.models, ModelBudget)
        if self.parent_uid is not None:
            check_text("parent_uid", self.parent_uid)


class Delegation(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """Who acts, for whom, with which scopes, and until when. A sandbox has the same one all its life.

    Args:
        uid: Its id: ``dlg-`` and 20 lower case letters and digits.
        parent_uid: The delegation that it is a part of. None is the root of a chain: what an API key or a local
            user may do by itself.
        issuer: Who made it: the id of an API key, or ``user NAME`` for a user of this machine.
        on_behalf_of: The person or agent that it is for; empty if nobody said.
        audience: Who acts under it: the id of a sandbox, or ``home`` for the root of a chain.
        scopes: All that the sandbox may do.
        created_at: Since when, in Unix seconds.
        expires_at: Until when. None is without an end.
        models: How much may be spent on models under it: its own budget, or that of the nearest one above it. None
            is no limit by a delegation.
        budgets: The names of all budgets that are spent under it, the root's first: those of keys and of
            delegations.
    """

    uid: str
    parent_uid: str | None = None
    issuer: str
    on_behalf_of: str = ""
    audience: str = "home"
    scopes: tuple[Scope, ...] = SCOPES
    created_at: float
    expires_at: float | None = None
    models: ModelBudget | None = None
    budgets: tuple[str, ...] = ()

    @property
    def is_root(self) -> bool:
        """Whether it is the root of a chain: of a key or a user, not of a sandbox."""
        return self.parent_uid is None

    def has_ended(self, now_s: float) -> bool:
        """Whether it has ended at a time, in Unix seconds."""
        return self.expires_at is not None and self.expires_at <= now_s
