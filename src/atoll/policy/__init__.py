"""Egress policies, delegations and powers: checking and adding up. Pure: nothing here asks the host."""

from atoll.policy.ceiling import EVERYTHING, ceiling_of, check_ceiling
from atoll.policy.check import check_policy, rule_name
from atoll.policy.delegating import (
    DELEGATION_BUDGET,
    KEY_BUDGET,
    allows,
    check_alive,
    check_network_scopes,
    check_scope,
    child_of,
    key_budgets,
    narrowed,
    own_budget,
)
from atoll.policy.hosts import matches_host, plain_host, plain_pattern
from atoll.policy.internal import is_internal, sandbox_ref, without_own
from atoll.policy.models import matches_model, models_from_text, narrowed_models
from atoll.policy.powers import PowerFacts, powers_of
from atoll.policy.presets import policy_of
from atoll.policy.proxies import (
    SEALED,
    ProxyAddress,
    is_sealed,
    login_of,
    masked,
    proxy_address,
    with_password,
)
from atoll.policy.ranges import CLOSED, closed, plain, touches_closed
from atoll.policy.schema import schema
from atoll.policy.shadow import shadowed
from atoll.policy.spelling import proxy_document, spelled_out
from atoll.policy.suggest import Suggestion, suggest
from atoll.policy.text import policy_from_json, policy_from_text, policy_from_toml, to_toml

__all__ = [
    "CLOSED",
    "EVERYTHING",
    "SEALED",
    "PowerFacts",
    "ProxyAddress",
    "Suggestion",
    "allows",
    "ceiling_of",
    "check_alive",
    "check_ceiling",
    "check_network_scopes",
    "check_policy",
    "check_scope",
    "child_of",
    "closed",
    "is_internal",
    "is_sealed",
    "login_of",
    "masked",
    "matches_host",
    "matches_model",
    "models_from_text",
    "narrowed",
    "narrowed_models",
    "plain",
    "plain_host",
    "plain_pattern",
    "policy_from_json",
    "policy_from_text",
    "policy_from_toml",
    "policy_of",
    "powers_of",
    "proxy_address",
    "proxy_document",
    "rule_name",
    "sandbox_ref",
    "schema",
    "shadowed",
    "spelled_out",
    "suggest",
    "to_toml",
    "touches_closed",
    "with_password",
    "without_own",
    "DELEGATION_BUDGET",
    "KEY_BUDGET",
    "key_budgets",
    "own_budget",
]
