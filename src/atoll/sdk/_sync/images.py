# Made by scripts/unasync.py from sdk/_async/images.py: do not edit.
"""The images of a home."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from atoll.protocol import VerifyRequest
from atoll.sdk._sync.link import Link, ignored, ref
from atoll.types import ImageAccess, ImageInfo, Progress, VerifyReport

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
        name: str = "base",
        *,
        on_progress: Callable[[Progress], Any] | None = None,
        access: ImageAccess | None = None,
    ) -> ImageInfo:
        """Have an image: ``base`` as it is built today, another of whatever age, pulled if it is missing.

        Args:
            name: A reference, like ``python:3.12``.
            on_progress: Called with what goes on.
            access: For which team, and with which credentials; None is for whoever owns the home.

        Raises:
            InvalidSpecError: It is no name of an image.
            ImageNotFoundError: Its registry has none of that name.
            ImagePullError: Its registry does not give it, or it is not what it must be.
            UnsupportedError: There is none for this machine.
            ImageBuildError: It could not be built; the message has the last words of the build.
            HostError: The host lacks a program that is needed.
            NoSpaceError: The disk under the home is full.
        """
        with contextlib.closing(Link()) as link:
            return link.long_call(
                "POST", f"/v1/images/{ref(name)}", ImageInfo, access, on_progress=on_progress
            )

    @staticmethod
    def pull(name: str, *, on_progress: Callable[[Progress], Any] | None = None) -> ImageInfo:
        """Have an image as its registry has it now. What is here already does not come again.

        Args:
            name: A reference: ``python:3.12``, ``ghost.example/team/tool:1``, ``tool@sha256:…``.
            on_progress: Called with what goes on: bytes that have come, layers that are unpacked.

        Raises:
            InvalidSpecError: It is no reference.
            ImageNotFoundError: Its registry has none of that name.
            ImagePullError: Its registry does not give it, or it is not what it must be.
            UnsupportedError: There is none for this machine.
            NoSpaceError: The disk under the home is full.
        """
        with contextlib.closing(Link()) as link:
            path = f"/v1/images/{ref(name)}?newest=true"
            return link.long_call("POST", path, ImageInfo, on_progress=on_progress)

    @staticmethod
    def get(name: str) -> ImageInfo:
        """One that is there, by its name or digest.

        Raises:
            ImageNotFoundError: There is none of that name.
        """
        with contextlib.closing(Link()) as link:
            return link.call("GET", f"/v1/images/{ref(name)}", ImageInfo)

    @staticmethod
    def verify(*names: str, on_progress: Callable[[Progress], Any] | None = None) -> VerifyReport:
        """Read the layers of images and say which files are not what they were. With none named, those of all images.

        Nothing is changed: but what has no checksums yet gets them.

        Args:
            names: Names or digests.
            on_progress: Called with how much has been read.

        Raises:
            ImageNotFoundError: There is none of that name.
            UnsupportedError: In this home, where the engine keeps disks, images are changed by those who use them.
        """
        with contextlib.closing(Link()) as link:
            wanted = VerifyRequest(names=list(names))
            return link.long_call(
                "POST", "/v1/verified-images", VerifyReport, wanted, on_progress=on_progress or ignored
            )

    @staticmethod
    def remove(name: str) -> None:
        """Forget a name, and erase the image when it was its last one. Layers that other images have stay.

        Raises:
            ImageNotFoundError: There is none of that name.
            InUseError: A sandbox or snapshot stands on it.
        """
        with contextlib.closing(Link()) as link:
            link.delete(f"/v1/images/{ref(name)}")
