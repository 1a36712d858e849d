"""Checks what a caller asks of the copies of a sandbox, and of the one to keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from atoll.errors import InvalidSpecError
from atoll.protocol import DiffRequest, ForkRequest, PromoteRequest
from atoll.types import DelegationSpec, Lifecycle, ModelAccess, SandboxInfo, SnapshotInfo
from atoll.types.internal import check_access, check_kind, check_number, check_text, texts_of


def fork_request(
    count: int | None,
    names: Sequence[str] | None,
    lifecycle: Lifecycle | None,
    delegation: DelegationSpec | None,
    models: ModelAccess | None,
) -> ForkRequest:
    """Return the request for copies.

    Raises:
        InvalidSpecError: ``count``, ``names``, ``lifecycle``, ``delegation`` or ``models`` is invalid.
    """
    if names is None:
        named: list[str] = []
    else:
        if isinstance(names, (str, bytes)) or not isinstance(names, Sequence):
            raise InvalidSpecError(f"names is {names!r}", hint="give a list with a name for each copy")
        for name in names:
            check_text("a name", name)
        named = list(names)
    if count is None:
        count = 1 if names is None else len(named)
    check_number("count", count, least=1, whole=True, hint="give 1 to 100")
    if names is not None and len(named) != count:
        raise InvalidSpecError(
            f"there are {len(named)} names for {count} copies", hint="give one name for each copy, or none"
        )
    if lifecycle is not None:
        check_kind("lifecycle", lifecycle, Lifecycle)
        lifecycle.check()
    if delegation is not None:
        check_kind("delegation", delegation, DelegationSpec)
    if models is not None:
        check_access(models)
    return ForkRequest(count=count, lifecycle=lifecycle, names=named, delegation=delegation, models=models)


def promote_request(fork: object, name: str | None) -> PromoteRequest:
    """The body of the request that promotes a fork: its handle, its info, or its id or name.

    Raises:
        InvalidSpecError: It is nothing of that, or the name is not text.
    """
    winner = _ref("fork", fork)
    if name is not None:
        check_text("name", name)
    return PromoteRequest(winner=winner, name=name)


def diff_request(base: object, paths: Sequence[str]) -> DiffRequest:
    """The body of the request that compares files with those of a sandbox or snapshot.

    Raises:
        InvalidSpecError: It is neither, or ``paths`` are not texts.
    """
    listed = texts_of("paths", paths, hint="give a list of absolute paths")
    return DiffRequest(base=_ref("base", base), paths=listed)


def _ref(name: str, given: object) -> str:
    ref: Any = getattr(given, "id", given)
    if isinstance(given, SnapshotInfo):
        ref = given.snapshot_id
    elif isinstance(given, SandboxInfo):
        ref = given.sandbox_id
    check_text(name, ref)
    return str(ref)
