# Made by scripts/unasync.py from sdk/_async/images.py: do not edit.
"""The images of a home."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from atoll.sdk._sync.link import Link, ref
from atoll.types import ImageInfo, Progress

_Images = list[ImageInfo]


class Images:
    """Root file systems that sandboxes start from."""

    @staticmethod
    def list() -> _Images:
        """The images that are there."""
        with contextlib.closing(Link()) as link:
            return link.call("GET", "/v1/images", list[ImageInfo])

    @staticmethod
    def ensure(
        name: str = "base", *, on_progress: Callable[[Progress], Any] | None = None
    ) -> ImageInfo:
        """Build an image unless it is there.

        Raises:
            ImageNotFoundError: Nobody knows how to build that one.
            ImageBuildError: It could not be built; the message has the last words of the build.
            HostError: The host lacks a program that is needed.
            NoSpaceError: The disk under the home is full.
        """
        with contextlib.closing(Link()) as link:
            return link.long_call("POST", f"/v1/images/{ref(name)}", ImageInfo, on_progress=on_progress)

    @staticmethod
    def remove(name: str) -> None:
        """Erase an image.

        Raises:
            ImageNotFoundError: There is none of that name.
            InUseError: A sandbox or snapshot stands on it.
        """
        with contextlib.closing(Link()) as link:
            link.delete(f"/v1/images/{ref(name)}")
