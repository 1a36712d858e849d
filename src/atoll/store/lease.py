"""Has one collector at a time work on an owner's part of a store."""

from __future__ import annotations

import contextlib

import msgspec

from atoll.errors import InUseError, NoSpaceError, StoreConflictError, StoreError
from atoll.store.records import FoundRecord, Record
from atoll.store.store import Store

LEASE_S = 3600.0
_RENEW_S = 600.0
_KIND, _ID = "lease", "collector"


class Lease:
    """A record that says who collects, for an hour at a time. Use it inside ``with``.

    Args:
        store: The owner's part of the store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._held: FoundRecord | None = None

    def __enter__(self) -> Lease:
        """Take the lease.

        Raises:
            InUseError: Another one holds it.
        """
        records, now_s = self._store.records, self._store.now_s()
        before = records.find(_KIND, _ID)
        if before is not None and now_s - before.record.changed_at < LEASE_S:
            raise _in_use()
        record = Record(kind=_KIND, record_id=_ID, changed_at=now_s)
        try:
            self._held = records.create(record) if before is None else records.replace(before, record)
        except StoreConflictError:
            raise _in_use() from None
        return self

    def __exit__(self, *error: object) -> None:
        held, self._held = self._held, None
        if held is not None:
            # otherwise it ends by itself
            with contextlib.suppress(StoreError, NoSpaceError):
                self._store.records.replace(held, msgspec.structs.replace(held.record, changed_at=0.0))

    def renew(self) -> None:
        """Hold the lease for longer, if much of it is over.

        Raises:
            InUseError: Another one holds it by now, because this one was late.
        """
        held, now_s = self._held, self._store.now_s()
        if held is None or now_s - held.record.changed_at < _RENEW_S:
            return
        record = msgspec.structs.replace(held.record, changed_at=now_s)
        try:
            self._held = self._store.records.replace(held, record)
        except StoreConflictError:
            self._held = None
            raise _in_use() from None


def _in_use() -> InUseError:
    return InUseError("the store is being collected", hint="try again later")
