"""The models that the home offers to sandboxes, and who may use which."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from atoll.errors import AtollError, InvalidSpecError, KeyNotFoundError, UnsupportedError
from atoll.host import write_atomically
from atoll.network import ModelRights
from atoll.policy import DELEGATION_BUDGET, KEY_BUDGET, matches_model, narrowed_models
from atoll.supervisor.state.inventory import Inventory
from atoll.supervisor.state.rows import ModelGrant, SandboxRow, SnapshotRow
from atoll.supervisor.tenants.keys import Keys
from atoll.supervisor.tenants.model_ledger import SANDBOX_BUDGET, ModelLedger
from atoll.supervisor.tenants.model_prices import PriceTable, prices_for
from atoll.supervisor.tenants.secrets import Secrets
from atoll.types import Delegation, ModelAccess, ModelBudget, ModelProvider, ModelSetup
from atoll.types.internal import from_json

HOME_BUDGET = "home"
_TEAM_BUDGET = "team:"
_NO_LIMIT = ModelBudget(per="total")
_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class Models:
    """Keeps what the owner of the home has set, and tells the edge of it.

    Args:
        path: Where it is kept.
        secrets: The keys of providers: secrets of the home, not of a team.
        ledger: The budgets.
        table: Returns the prices that come with atoll.
        inventory: The sandboxes and snapshots, which share the budgets.
        keys: The API keys, which may have budgets too.
    """

    path: Path
    secrets: Secrets
    ledger: ModelLedger
    table: Callable[[], PriceTable]
    inventory: Inventory
    keys: Keys
    setup: ModelSetup = field(default_factory=ModelSetup, init=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _followers: list[Callable[[], None]] = field(default_factory=list, init=False)

    async def load(self) -> None:
        """Read what was set, and the budgets. Without it, or if it is damaged, no sandbox has models."""
        rows = [*(each.row for each in self.inventory.sandboxes()), *self.inventory.snapshots()]
        used = {row.models.budget for row in rows if row.models is not None}
        await self.ledger.load(used.union(*(_delegated(row.delegation) for row in rows)))
        self.secrets.follow(self._secret_changed)
        try:
            self.setup = from_json(await asyncio.to_thread(self.path.read_bytes), ModelSetup)
        except FileNotFoundError:
            return
        except (OSError, msgspec.DecodeError) as error:
            _log.error("%s cannot be read, and no sandbox has models: %s", self.path, error)
            return
        await self.ledger.declare(self._limits())

    def follow(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` whenever something else is set, or a key has changed."""
        self._followers.append(changed)

    async def set(self, setup: ModelSetup) -> None:
        """Offer these models from now on, in place of all before. It is on the disk when this returns.

        Raises:
            SecretNotFoundError: The home has no secret of a name.
            InvalidSpecError: A key is bound to other hosts, or is a canary.
            KeyNotFoundError: There is no API key of an id that has a budget.
        """
        self._check_keys(setup)
        for provider in setup.providers.values():
            for key in provider.keys:
                self.secrets.check_hosts(None, key, (provider.endpoint[0],))
                self.secrets.values_for(None, (key,))
        async with self._lock:
            data = msgspec.json.format(msgspec.json.encode(setup))
            await asyncio.to_thread(write_atomically, self.path, data)
            self.setup = setup
            await self.ledger.declare(self._limits())
        self._tell()

    def document(self) -> dict[str, Any]:
        """Everything that the edge has to know of models, with the keys."""
        setup = self.setup
        return {
            "providers": {
                name: {"kind": each.kind, "url": each.address, "keys": list(self._keys(each))}
                for name, each in setup.providers.items()
            },
            "aliases": {alias: [_target(full) for full in models] for alias, models in setup.aliases.items()},
            "prices": prices_for(setup, self.table()),
        }

    async def grant(
        self, wanted: ModelAccess | None, sandbox_id: str, team: str | None, snapshot: SnapshotRow | None
    ) -> ModelGrant | None:
        """The models of a new sandbox; None for none. Its budget is ready to be spent.

        Args:
            snapshot: The snapshot that it continues from. It has the models of that, and shares the budget.

        Raises:
            UnsupportedError: The home offers no models, or the team may use none.
            InvalidSpecError: A pattern allows nothing of what the home offers and the team may use.
        """
        if wanted is None:
            # what another team pays for is not its own
            return snapshot.models if snapshot is not None and snapshot.team == team else None
        self._check(wanted, team)
        grant = ModelGrant(wanted, f"{SANDBOX_BUDGET}{sandbox_id}")
        await self.ledger.declare({grant.budget: wanted.budget})
        return grant

    async def renamed(self, grant: ModelGrant | None, sandbox_id: str) -> ModelGrant | None:
        """The models of a sandbox that got another id while it was made. Its budget is named after that."""
        if grant is None:
            return None
        renamed = ModelGrant(grant.access, f"{SANDBOX_BUDGET}{sandbox_id}")
        await self.ledger.declare({renamed.budget: grant.access.budget})
        return renamed

    def rights_of(self, row: SandboxRow) -> ModelRights | None:
        """What a sandbox may use now, by its own setting and its team's; None for nothing."""
        if row.models is None or not self.setup.providers:
            return None
        allow, budgets = tuple(row.models.access.allow), self.budgets_of_sandbox(row)
        if row.team is not None:
            team = self.setup.teams.get(row.team)
            if team is None:
                return None
            allow = narrowed_models(allow, team.allow)
            if team.budget.is_limited:
                budgets.append(f"{_TEAM_BUDGET}{row.team}")
        if self.setup.budget.is_limited:
            budgets.append(HOME_BUDGET)
        endpoints = tuple((name, *each.endpoint) for name, each in self.setup.providers.items())
        return ModelRights(allow, tuple(budgets), endpoints) if allow else None

    def budgets_of(self, team: str | None) -> list[str]:
        """The budgets that the setup gives a team and its keys, or the whole home for None."""
        keys = [key for key, budget in self.setup.keys.items() if budget.is_limited]
        if team is not None:
            own = {key.key_id for key in self.keys.list() if key.team == team}
            return [f"{_TEAM_BUDGET}{team}", *(f"{KEY_BUDGET}{key}" for key in keys if key in own)]
        teams = (f"{_TEAM_BUDGET}{name}" for name in self.setup.teams)
        return [HOME_BUDGET, *teams, *(f"{KEY_BUDGET}{key}" for key in keys)]

    def budgets_of_delegations(self, team: str | None) -> list[str]:
        """The budgets of all delegations of a team, or of the home for None, that a sandbox acts under."""
        rows = [each.row for each in self.inventory.sandboxes()]
        named = (_delegated(row.delegation) for row in rows if team in (None, row.team))
        return list(dict.fromkeys(name for names in named for name in names))

    def budgets_of_sandbox(self, row: SandboxRow) -> list[str]:
        """The budget of a sandbox, if it has models, and those of its delegations and their keys."""
        own = [] if row.models is None else [row.models.budget]
        above = () if row.delegation is None else row.delegation.budgets
        return [*own, *(name for name in above if self._is_limited(name))]

    def _is_limited(self, budget: str) -> bool:
        """Whether a budget of a delegation or key bounds anything. A delegation's always does."""
        if not budget.startswith(KEY_BUDGET):
            return True
        return self.setup.keys.get(budget.removeprefix(KEY_BUDGET), _NO_LIMIT).is_limited

    def _check_keys(self, setup: ModelSetup) -> None:
        known = {key.key_id for key in self.keys.list()}
        for key in setup.keys:
            if key not in known:
                raise KeyNotFoundError(
                    f"a budget is for {key!r}, and there is no such key", hint="`atoll key ls` lists them"
                )

    def _check(self, wanted: ModelAccess, team: str | None) -> None:
        setup = self.setup
        if not setup.providers:
            raise UnsupportedError(
                "this home offers no models", hint="its owner sets them: atoll models set models.toml"
            )
        if team is not None and team not in setup.teams:
            raise UnsupportedError(
                f"the team {team!r} may use no models", hint="the owner of the home can allow it some"
            )
        within = ("*",) if team is None else setup.teams[team].allow
        for pattern in wanted.allow:
            if not narrowed_models((pattern,), within):
                raise InvalidSpecError(
                    f"{pattern!r} is not among the models that the team may use",
                    hint=f"it may use {', '.join(within)}"[:400],
                )
            if not self._offers(pattern):
                raise InvalidSpecError(
                    f"{pattern!r} is neither an alias nor a model of a provider here",
                    hint=f"there are {', '.join([*setup.aliases, *(f'{name}/…' for name in setup.providers)])}"[
                        :400
                    ],
                )

    def _offers(self, pattern: str) -> bool:
        if any(matches_model(pattern, alias) for alias in self.setup.aliases):
            return True
        provider, slash, _ = pattern.partition("/")
        if not slash:
            return "*" in pattern
        return any(matches_model(provider, name) for name in self.setup.providers)

    def _keys(self, provider: ModelProvider) -> Iterator[str]:
        """The keys of a provider. One that cannot be had is left out: the others may do."""
        host = provider.endpoint[0]
        for name in provider.keys:
            try:
                self.secrets.check_hosts(None, name, (host,))
                yield self.secrets.values_for(None, (name,))[name]
            except AtollError as error:
                _log.warning("a provider of models cannot use its key: %s", error)

    def _limits(self) -> dict[str, ModelBudget]:
        limits = {f"{_TEAM_BUDGET}{name}": access.budget for name, access in self.setup.teams.items()}
        limits |= {f"{KEY_BUDGET}{key}": budget for key, budget in self.setup.keys.items()}
        budget = self.setup.budget
        return {**limits, HOME_BUDGET: budget if budget.is_limited else _NO_LIMIT}

    def _secret_changed(self, team: str | None, name: str) -> None:
        used = {key for each in self.setup.providers.values() for key in each.keys}
        if team is None and name in {key.lower() for key in used}:
            self._tell()

    def _tell(self) -> None:
        for follower in self._followers:
            follower()


def _delegated(delegation: Delegation | None) -> Iterable[str]:
    """The budgets of delegations that are spent under one."""
    names = () if delegation is None else delegation.budgets
    return [name for name in names if name.startswith(DELEGATION_BUDGET)]


def _target(full: str) -> dict[str, str]:
    provider, _, model = full.partition("/")
    return {"provider": provider, "model": model}
