"""Objects in an object store of a provider, by obstore."""

from __future__ import annotations

import builtins
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

from atoll.errors import InvalidSpecError, StoreConflictError, StoreError, UnsupportedError
from atoll.store.objects import MissingObjectError, Objects, StoredObject, Versioned, checked_name

SCHEMES = ("s3", "gs", "az")
# Together these bound how long a call waits for a store that does not answer.
_RETRIES = 6
_PATIENCE = timedelta(seconds=60)
_MULTIPART_BYTES = 32 << 20
# So long an answer that breaks off is asked for again.
_BROKEN_S, _PAUSE_S = 2.0, 0.05
_Read = TypeVar("_Read")


class RemoteObjects(Objects):
    """A store at a provider. It needs ``atoll[store]``.

    Credentials and the region come from the provider's own variables, as ``AWS_ACCESS_KEY_ID``. Another
    endpoint of the same protocol is ``AWS_ENDPOINT_URL``.

    Args:
        url: ``s3://bucket/prefix``, or with ``gs`` or ``az``.
        options: Further options of obstore, for tests.

    Raises:
        InvalidSpecError: The address is none that it knows.
        UnsupportedError: obstore is not installed.
    """

    def __init__(self, url: str, **options: Any) -> None:
        try:
            parts = urlsplit(url)
        except ValueError:
            parts = urlsplit("")
        if parts.scheme not in SCHEMES or not parts.netloc:
            raise InvalidSpecError(
                f"{url!r} is no address of a store",
                hint="give a directory, or s3://BUCKET/PREFIX, gs://… or az://…",
            )
        try:
            import obstore
            from obstore import exceptions
            from obstore.store import from_url
        except ImportError:
            raise UnsupportedError(
                f"a store at {parts.scheme}:// needs obstore", hint="pip install 'atoll[store]'"
            ) from None
        self._obstore = obstore
        self._errors = exceptions
        self._place = urlunsplit((parts.scheme, parts.hostname or "", parts.path.rstrip("/"), "", ""))
        options.setdefault("retry_config", {"max_retries": _RETRIES, "retry_timeout": _PATIENCE})
        try:
            self._store: Any = from_url(url, **options)
        except exceptions.BaseError as error:
            raise InvalidSpecError(f"the store {self._place} cannot be used: {_said(error)}") from None

    @property
    def place(self) -> str:
        """Its address."""
        return self._place

    def read(self, name: str, start: int = 0, size: int | None = None) -> bytes:
        """See ``Objects.read``."""
        return self._read(name, lambda path: self._part(path, start, size))

    def _part(self, path: str, start: int, size: int | None) -> bytes:
        if size is not None:
            try:
                return bytes(self._obstore.get_range(self._store, path, start=start, length=size))
            except self._errors.GenericError as error:
                if "416" not in str(error):
                    raise
                return b""  # the range begins after the end
        options: Any = {"range": {"offset": start}} if start else None
        return bytes(self._obstore.get(self._store, path, options=options).bytes())

    def versioned(self, name: str) -> Versioned | None:
        """See ``Objects.versioned``."""
        try:
            data, tag = self._read(name, self._with_tag)
        except MissingObjectError:
            return None
        if tag is None:
            raise UnsupportedError(f"the store {self._place} names no versions of its objects")
        return Versioned(data, tag)

    def _with_tag(self, path: str) -> tuple[bytes, str | None]:
        got = self._obstore.get(self._store, path)
        return bytes(got.bytes()), got.meta["e_tag"]

    def put(self, name: str, data: bytes) -> None:
        """See ``Objects.put``."""
        try:
            with self._told(name):
                self._obstore.put(
                    self._store, checked_name(name), data, use_multipart=len(data) > _MULTIPART_BYTES
                )
        except MissingObjectError:
            raise self._not_there() from None

    def _not_there(self) -> StoreError:
        return StoreError(f"there is no {self._place}", hint="make the bucket first", retryable=False)

    def create(self, name: str, data: bytes) -> str:
        """See ``Objects.create``."""
        try:
            return self._conditionally(name, data, "create")
        except MissingObjectError:
            raise self._not_there() from None

    def replace(self, name: str, data: bytes, tag: str) -> str:
        """See ``Objects.replace``."""
        try:
            return self._conditionally(name, data, {"e_tag": tag})
        except MissingObjectError:
            # S3 answers so to a condition on an object that is gone
            raise StoreConflictError(f"{name} was removed from the store in the meantime") from None

    def remove(self, names: Iterable[str]) -> None:
        """See ``Objects.remove``."""
        for name in names:
            with contextlib.suppress(MissingObjectError), self._told(name):
                self._obstore.delete(self._store, checked_name(name))

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """See ``Objects.list``."""
        yield from self._read(prefix, self._list)

    def _list(self, prefix: str) -> builtins.list[StoredObject]:
        pages = self._obstore.list(self._store, prefix, chunk_size=1000)
        return [StoredObject(meta["path"], meta["size"]) for some in pages for meta in some]

    def _read(self, name: str, call: Callable[[str], _Read]) -> _Read:
        """Call what reads, and again if the answer broke off: obstore repeats only what was not answered."""
        path = checked_name(name)
        until_s = time.monotonic() + _BROKEN_S
        while True:
            try:
                with self._told(name):
                    return call(path)
            except StoreError as error:
                if not error.retryable or time.monotonic() > until_s:
                    raise
            time.sleep(_PAUSE_S)

    def _conditionally(self, name: str, data: bytes, mode: Any) -> str:
        try:
            with self._told(name):
                done = self._obstore.put(
                    self._store, checked_name(name), data, mode=mode, use_multipart=False
                )
        except StoreConflictError:
            # The first try may have been this write itself, and only its answer was lost.
            found = self.versioned(name)
            if found is None or found.data != data:
                raise
            return found.tag
        tag = done["e_tag"]
        if tag is None:
            raise UnsupportedError(f"the store {self._place} names no versions of its objects")
        return str(tag)

    @contextlib.contextmanager
    def _told(self, name: str) -> Iterator[None]:
        errors = self._errors
        try:
            yield
        except (errors.NotFoundError, FileNotFoundError):
            raise MissingObjectError(name) from None
        except (errors.AlreadyExistsError, errors.PreconditionError):
            raise StoreConflictError(f"{name} was changed in the store in the meantime") from None
        except errors.NotSupportedError as error:
            raise UnsupportedError(f"the store {self._place} cannot do it: {_said(error)}") from None
        except (errors.PermissionDeniedError, errors.UnauthenticatedError) as error:
            raise StoreError(
                f"the store {self._place} refuses {name}: {_said(error)}",
                hint="check the credentials and their rights",
                retryable=False,
            ) from None
        except (errors.BaseError, OSError) as error:
            raise StoreError(
                f"the store {self._place} cannot be used for {name}: {_said(error)}", hint="try again"
            ) from None


def _said(error: BaseException) -> str:
    """The first line of an error: the rest is obstore's own structure."""
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
