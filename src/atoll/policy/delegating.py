"""What a delegation allows, and how a child of it is made. A child only ever has less."""

from __future__ import annotations

import time
from collections.abc import Collection

import msgspec

from atoll.errors import DelegationError, DelegationExpiredError
from atoll.types import Delegation, DelegationSpec, EgressPolicy, ModelBudget, Policy, Scope
from atoll.types.internal import SCOPES

KEY_BUDGET = "key:"
DELEGATION_BUDGET = "delegation:"
_KEY = "key-"
# Each request waits for all budgets of its chain, and each row has all their names.
_OWN_BUDGETS_MOST = 16


def child_of(
    parent: Delegation, wanted: DelegationSpec, *, uid: str, issuer: str, audience: str, now_s: float
) -> Delegation:
    """Return the child of a delegation that somebody asks for.

    Raises:
        DelegationExpiredError: The parent has ended.
        DelegationError: More is asked for than the parent has.
    """
    check_alive(parent, now_s, "give a part of it away")
    scopes = parent.scopes if wanted.scopes is None else _in_order(wanted.scopes)
    if more := [scope for scope in scopes if scope not in parent.scopes]:
        raise DelegationError(
            f"the delegation {parent.uid} cannot give the scope {' or '.join(more)}: it has "
            f"{', '.join(parent.scopes) or 'none'}",
            hint="ask for less, or start from one that has it",
        )
    expires_at = parent.expires_at if wanted.expires_in_s is None else now_s + wanted.expires_in_s
    if parent.expires_at is not None and (expires_at is None or expires_at > parent.expires_at):
        raise DelegationError(
            f"the delegation {parent.uid} ends at {_moment(parent.expires_at)}, before its child would",
            hint="ask for a shorter time, or for none",
        )
    _check_budget(parent, wanted.models)
    own = () if wanted.models is None or not wanted.models.is_limited else (f"{DELEGATION_BUDGET}{uid}",)
    budgets = (*parent.budgets, *key_budgets(issuer), *own)
    return Delegation(
        uid=uid,
        parent_uid=parent.uid,
        issuer=issuer,
        on_behalf_of=parent.on_behalf_of if wanted.on_behalf_of is None else wanted.on_behalf_of,
        audience=audience,
        scopes=scopes,
        created_at=now_s,
        expires_at=expires_at,
        models=wanted.models if own else parent.models,
        budgets=tuple(dict.fromkeys(budgets)),
    )


def key_budgets(issuer: str) -> tuple[str, ...]:
    """The budget of an API key for all that it makes, if the issuer is a key."""
    return (f"{KEY_BUDGET}{issuer}",) if issuer.startswith(_KEY) else ()


def own_budget(delegation: Delegation) -> str | None:
    """The name of the budget that a delegation has beside those above it; None if it has none."""
    name = f"{DELEGATION_BUDGET}{delegation.uid}"
    return name if name in delegation.budgets else None


def narrowed(parent: Delegation, other: Delegation) -> Delegation:
    """Return a delegation with no more scopes, and no more time, than another one has too."""
    scopes = tuple(scope for scope in parent.scopes if scope in other.scopes)
    ends = [one.expires_at for one in (parent, other) if one.expires_at is not None]
    return msgspec.structs.replace(parent, scopes=scopes, expires_at=min(ends, default=None))


def allows(delegation: Delegation | None, scope: Scope, now_s: float) -> bool:
    """Whether a sandbox that acts under a delegation may do something now. None is nobody's, and allows all."""
    return delegation is None or (scope in delegation.scopes and not delegation.has_ended(now_s))


def check_alive(
    delegation: Delegation | None, now_s: float, action: str, sandbox_id: str | None = None
) -> None:
    """Refuse what nobody may do under a delegation that has ended.

    Raises:
        DelegationExpiredError: It has ended.
    """
    if delegation is not None and delegation.expires_at is not None and delegation.has_ended(now_s):
        raise DelegationExpiredError(
            f"cannot {action}: the delegation {delegation.uid} ended at {_moment(delegation.expires_at)}",
            hint="nothing prolongs it: create another sandbox, under a delegation that lasts longer",
            sandbox_id=sandbox_id,
        )


def check_scope(
    delegation: Delegation | None, scope: Scope, what: str, sandbox_id: str | None = None
) -> None:
    """Refuse what a delegation has no scope for.

    Args:
        what: What is refused, as the beginning of a sentence.

    Raises:
        DelegationError: It does not have the scope.
    """
    if delegation is not None and scope not in delegation.scopes:
        raise DelegationError(
            f"{what} needs the scope {scope}, which the delegation {delegation.uid} does not have",
            hint="create another sandbox, under a delegation that has it",
            sandbox_id=sandbox_id,
        )


def check_network_scopes(
    delegation: Delegation | None, network: EgressPolicy, sandbox_id: str | None = None
) -> None:
    """Refuse an egress policy that needs scopes which a delegation does not have.

    Raises:
        DelegationError: It does not have ``network`` or ``secrets``.
    """
    if network != "none":
        check_scope(delegation, "network", "a network other than none", sandbox_id)
    if isinstance(network, Policy) and any(rule.inject for rule in network.rules):
        check_scope(delegation, "secrets", "a rule that puts a secret into requests", sandbox_id)


def _check_budget(parent: Delegation, wanted: ModelBudget | None) -> None:
    if wanted is None or not wanted.is_limited:
        return
    had = parent.models
    if had is not None and had.per == wanted.per:
        kinds = ((had.usd, wanted.usd, "dollars"), (had.tokens, wanted.tokens, "tokens"))
        for most, asked, what in kinds:
            if most is not None and asked is not None and asked > most:
                raise DelegationError(
                    f"the delegation {parent.uid} cannot give {asked:,} {what} for models: it has {most:,}",
                    hint="ask for less, or for no budget: what is spent counts for the parent's too",
                )
    if sum(name.startswith(DELEGATION_BUDGET) for name in parent.budgets) >= _OWN_BUDGETS_MOST:
        raise DelegationError(
            f"{_OWN_BUDGETS_MOST} delegations above this one have budgets for models",
            hint="ask for no budget of its own",
        )


def _in_order(scopes: Collection[Scope]) -> tuple[Scope, ...]:
    return tuple(scope for scope in SCOPES if scope in scopes)


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
