"""Manages secrets: their values are stored sealed, and are only opened to be put into requests."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from atoll.errors import DamagedError, HostError, InvalidSpecError, NameTakenError, SecretNotFoundError
from atoll.policy import matches_host, plain_pattern
from atoll.secrets import Belonging, KeySource, Vault, open_vault
from atoll.supervisor.state.database import Database
from atoll.supervisor.state.ids import new_id
from atoll.supervisor.state.rows import SecretRow
from atoll.supervisor.storage.trash import erase, erase_unknown
from atoll.types import SecretInfo
from atoll.types.internal import check_secret_value

PREFIX = "sec_"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
_SECRETS_MOST = 1_000
_HOSTS_MOST = 64
_LABELS_MOST, _LABEL_BYTES, _TEXT_BYTES, _LABELS_BYTES = 32, 128, 1024, 8192
_log = logging.getLogger(__name__)
Follower = Callable[[str | None, str], None]


@dataclass(eq=False, repr=False)
class Secrets:
    """Makes, updates and deletes secrets, and opens their values.

    No error shows a value, or a name that is invalid: it may be a value in the wrong place.

    Args:
        directory: Where each secret has a directory for the copy of its row.
        clock: Returns Unix seconds.
    """

    database: Database
    directory: Path
    source: KeySource
    clock: Callable[[], float]
    _rows: dict[str, SecretRow] = field(default_factory=dict, init=False)
    _vault: Vault | None = field(default=None, init=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _followers: list[Follower] = field(default_factory=list, init=False)

    async def load(self) -> None:
        """Read the secrets from the database, and their key. Without the key, the rest still works."""
        self._rows = {row.secret_id: row for row in await self.database.all(SecretRow)}
        await erase_unknown(self.directory, self._rows)
        if self._rows:
            try:
                await asyncio.to_thread(self.vault)
            except HostError as error:
                _log.warning("no secret can be used: %s", error)

    def follow(self, changed: Follower) -> None:
        """Call ``changed`` with team and name after each create, update and delete of a secret."""
        self._followers.append(changed)

    def list(self, team: str | None = None) -> list[SecretInfo]:
        """All secrets, or those of a team, the oldest first."""
        return [row.info() for row in self._rows.values() if team in (None, row.team)]

    def get(self, ref: str, team: str | None = None) -> SecretInfo:
        """The secret with this id, or with this name among those of the team.

        With a team, only the team's secrets are found; without one, an id finds any team's secret.

        Raises:
            SecretNotFoundError: There is no such secret.
        """
        return self._row(ref, team).info()

    def values_for(self, team: str | None, names: Iterable[str]) -> dict[str, str]:
        """The values of a team's secrets, by the given names.

        This asks the keyring again if it did not answer before, which may take 10 s.

        Raises:
            SecretNotFoundError: The team has no secret of such a name.
            InvalidSpecError: One of the secrets is a canary, which is never sent.
            DamagedError: One of the secrets cannot be opened.
            HostError: The key is missing, or cannot be used.
        """
        rows = {name: self._named(name, team) for name in names}
        for name, row in rows.items():
            if row.canary:
                raise InvalidSpecError(
                    f"the secret {name!r} is a canary, and is never sent", hint="name another secret"
                )
        return {name: self._value(row) for name, row in rows.items()}

    def bound_for(self, team: str | None, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """The only hosts that may get a secret, as names and patterns, for each bound secret.

        Raises:
            SecretNotFoundError: The team has no secret of such a name.
        """
        bound = {name: self._named(name, team).hosts for name in names}
        return {name: hosts for name, hosts in bound.items() if hosts}

    def canaries_for(self, team: str | None) -> dict[str, str]:
        """The values of a team's canaries, by their names. Raises the errors of ``values_for``."""
        return {row.name: self._value(row) for row in self._of(team) if row.canary}

    def all_for(self, team: str | None) -> Callable[[], dict[str, str]]:
        """Return a function that opens all of a team's secrets, by their names, for a thread: it may take 10 s.

        It leaves out what cannot be opened, which nobody else can open either, and raises HostError without the key.
        """
        rows = list(self._of(team))

        def opened() -> dict[str, str]:
            values: dict[str, str] = {}
            for row in rows:
                with contextlib.suppress(DamagedError):
                    values[row.name] = self._value(row)
            return values

        return opened

    def check_hosts(self, team: str | None, name: str, hosts: Iterable[str]) -> None:
        """Refuse to send a secret to hosts that it is not bound to.

        Args:
            team: The secret's team.
            name: The secret's name.
            hosts: The names and patterns of a rule that sends it.

        Raises:
            SecretNotFoundError: The team has no secret of that name.
            InvalidSpecError: The secret is not bound to one of the hosts.
        """
        bound = self._named(name, team).hosts
        for host in hosts if bound else ():
            plain = plain_pattern(host)
            # A pattern of the rule fits a pattern of the binding as a name below it would.
            if plain is None or not any(matches_host(pattern, plain) for pattern in bound):
                raise InvalidSpecError(
                    f"the secret {name!r} may not be sent to {host!r}", hint=f"it is for {', '.join(bound)}"
                )

    def vault(self, *, may_create: bool = False) -> Vault:
        """Return the vault with the home's key. This may ask a keyring, which may take 10 s.

        Args:
            may_create: Whether to make a missing key. If there are secrets, which a new key would not open,
                none is made.

        Raises:
            HostError: The key is missing, or cannot be used.
        """
        if self._vault is None:
            self._vault = open_vault(self.source, may_create=may_create and not self._rows)
        return self._vault

    async def create(
        self,
        name: str,
        value: str,
        *,
        team: str | None = None,
        hosts: Iterable[str] = (),
        metadata: dict[str, str] | None = None,
        canary: bool = False,
    ) -> SecretInfo:
        """Make a secret. It is on the disk when this returns.

        Raises:
            InvalidSpecError: The name, the value, a host or a label is invalid, or the team has too many.
            NameTakenError: Another secret of the team has the name.
            HostError: The key cannot be made or used.
        """
        check_secret_value(value)
        now_s = self.clock()
        row = SecretRow(
            secret_id=PREFIX + new_id(),
            name=_checked_name(name),
            team=team,
            hosts=_checked_hosts(hosts),
            metadata=_checked_labels(metadata or {}),
            canary=canary,
            version=1,
            sealed=b"",
            created_at=now_s,
            changed_at=now_s,
        )
        async with self._lock:
            self._check_free(row.name, team)
            vault = await asyncio.to_thread(self.vault, may_create=True)
            row = row.but(sealed=vault.seal(value, _belonging(row)))
            directory = self.directory / row.secret_id
            try:
                directory.mkdir(mode=0o700)
                await self.database.put(row, durable=True)
            except BaseException:
                await erase(directory)
                raise
            self._rows[row.secret_id] = row
        self._tell(row)
        return row.info()

    async def update(
        self,
        ref: str,
        team: str | None = None,
        *,
        value: str | None = None,
        hosts: Iterable[str] | None = None,
        metadata: dict[str, str] | None = None,
    ) -> SecretInfo:
        """Change the given fields of a secret. The change is on the disk when this returns.

        Raises:
            InvalidSpecError: The value, a host or a label is invalid, or nothing is given.
            SecretNotFoundError: There is no such secret.
            DamagedError: No new value is given, and the present one cannot be opened.
            HostError: The key cannot be used.
        """
        if value is None and hosts is None and metadata is None:
            raise InvalidSpecError("nothing of the secret changes", hint="give a value, hosts or metadata")
        async with self._lock:
            row = self._row(ref, team)
            vault = await asyncio.to_thread(self.vault)
            value = vault.open(row.sealed, _belonging(row)) if value is None else check_secret_value(value)
            row = row.but(
                hosts=row.hosts if hosts is None else _checked_hosts(hosts),
                metadata=row.metadata if metadata is None else _checked_labels(metadata),
                version=row.version + 1,
                changed_at=self.clock(),
            )
            row = row.but(sealed=vault.seal(value, _belonging(row)))
            await self.database.put(row, durable=True)
            self._rows[row.secret_id] = row
        self._tell(row)
        return row.info()

    async def delete(self, ref: str, team: str | None = None) -> None:
        """Erase a secret, sealed value included. This is on the disk when it returns.

        Raises:
            SecretNotFoundError: There is no such secret.
        """
        async with self._lock:
            row = self._row(ref, team)
            await self._erase(row)
        self._tell(row)

    async def forget_team(self, team: str) -> None:
        """Erase all secrets of a team that is being deleted."""
        async with self._lock:
            rows = [row for row in self._rows.values() if row.team == team]
            for row in rows:
                await self._erase(row)
        for row in rows:
            self._tell(row)

    async def _erase(self, row: SecretRow) -> None:
        await self.database.delete(row)
        self._rows.pop(row.secret_id, None)
        await erase(self.directory / row.secret_id)

    def _tell(self, row: SecretRow) -> None:
        for follower in self._followers:
            try:
                follower(row.team, row.name)
            except Exception as error:  # the secret has changed anyway
                _log.error("a change of secret %s was not followed: %s", row.secret_id, type(error).__name__)

    def _value(self, row: SecretRow) -> str:
        return self.vault().open(row.sealed, _belonging(row))

    def _of(self, team: str | None) -> Iterable[SecretRow]:
        return (row for row in self._rows.values() if row.team == team)

    def _named(self, name: str, team: str | None) -> SecretRow:
        found = next((row for row in self._of(team) if row.name == name.lower()), None)
        if found is None:
            raise _missing(name)
        return found

    def _row(self, ref: str, team: str | None) -> SecretRow:
        found = self._rows.get(ref)
        if found is None:
            return self._named(ref, team)
        if team not in (None, found.team):
            raise _missing(ref)
        return found

    def _check_free(self, name: str, team: str | None) -> None:
        there = [row.name for row in self._of(team)]
        if name in there:
            raise NameTakenError(
                f"there is a secret {name!r} already", hint=f"change it: atoll secret update {name}"
            )
        if len(there) >= _SECRETS_MOST:
            raise InvalidSpecError(f"there are {_SECRETS_MOST} secrets already", hint="delete some")


def _belonging(row: SecretRow) -> Belonging:
    return Belonging(**{name: getattr(row, name) for name in Belonging.__struct_fields__})


def _missing(ref: str) -> SecretNotFoundError:
    known = f"there is no secret {ref!r}" if _NAME.fullmatch(ref) else "there is no secret of that name"
    return SecretNotFoundError(known, hint="`atoll secret ls` lists them")


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidSpecError(
            "that is not a valid name of a secret",
            hint="use 1 to 128 letters, digits, dashes and underscores",
        )
    if name.lower().startswith(PREFIX):
        raise InvalidSpecError(f"{name!r} begins as an id does", hint=f"use a name without {PREFIX}")
    return name.lower()


def _checked_hosts(hosts: Iterable[str]) -> tuple[str, ...]:
    patterns = []
    for host in hosts:
        plain = plain_pattern(host)
        if plain is None:
            raise InvalidSpecError(
                f"{host!r} is no host name", hint="give a name, *.NAME for every name below it, or *"
            )
        patterns.append(plain)
    if len(patterns) > _HOSTS_MOST:
        raise InvalidSpecError(f"the secret has {len(patterns)} hosts", hint=f"the most are {_HOSTS_MOST}")
    return tuple(dict.fromkeys(patterns))


def _checked_labels(metadata: dict[str, str]) -> dict[str, str]:
    sizes = [(len(key.encode()), len(text.encode())) for key, text in metadata.items()]
    if (
        len(sizes) > _LABELS_MOST
        or any(key > _LABEL_BYTES or text > _TEXT_BYTES for key, text in sizes)
        or sum(key + text for key, text in sizes) > _LABELS_BYTES
    ):
        raise InvalidSpecError(
            "the secret's metadata is too large",
            hint=f"at most {_LABELS_MOST} labels, names of {_LABEL_BYTES} and texts of {_TEXT_BYTES} bytes, "
            f"{_LABELS_BYTES} bytes together",
        )
    return dict(metadata)
