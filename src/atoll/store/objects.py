"""Where a store keeps its objects: a directory, or an object store of some provider."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from atoll.errors import InternalError

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)*")
NAME_MOST = 512


class MissingObjectError(KeyError):
    """There is no object of that name."""


class StoredObject(NamedTuple):
    """The name of an object, and its size in bytes."""

    name: str
    size: int


class Versioned(NamedTuple):
    """The content of an object, and the tag that names exactly this content."""

    data: bytes
    tag: str


class Objects(ABC):
    """Objects by name. Every object appears whole or not at all, and a reader sees each finished write.

    The methods block. Any number of threads may call them. Names are lower-case paths, see ``checked_name``.
    Each method raises ``StoreError`` if the place cannot be reached or refuses, and ``NoSpaceError`` if it is
    full.
    """

    @property
    @abstractmethod
    def place(self) -> str:
        """Where this is, in words for people. It has no credentials in it."""

    @abstractmethod
    def read(self, name: str, start: int = 0, size: int | None = None) -> bytes:
        """Return a part of an object.

        Args:
            name: The object.
            start: The first byte.
            size: How many bytes; None reads to the end. The result is shorter if the object is.

        Raises:
            MissingObjectError: There is no such object.
        """

    @abstractmethod
    def versioned(self, name: str) -> Versioned | None:
        """Return an object with its tag; None if there is none."""

    @abstractmethod
    def put(self, name: str, data: bytes) -> None:
        """Write an object whose content is known to be right, whatever was there. It is durable on return."""

    @abstractmethod
    def create(self, name: str, data: bytes) -> str:
        """Write a new object and return its tag.

        Raises:
            StoreConflictError: The object is there already.
        """

    @abstractmethod
    def replace(self, name: str, data: bytes, tag: str) -> str:
        """Write an object anew, if its tag is still this one, and return the new tag.

        Raises:
            StoreConflictError: It was changed or removed in the meantime.
        """

    @abstractmethod
    def remove(self, names: Iterable[str]) -> None:
        """Remove objects. A missing one is no error."""

    @abstractmethod
    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Yield the objects whose names begin with ``prefix`` and a slash, in no order."""


def checked_name(name: str) -> str:
    """Return a name that every kind of place accepts.

    Raises:
        InternalError: The name is another one.
    """
    if len(name) > NAME_MOST or not _NAME.fullmatch(name):
        raise InternalError(f"an object of the store cannot be called {name!r}")
    return name
