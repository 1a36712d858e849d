"""The images of a home."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from atoll.protocol import VerifyRequest
from atoll.sdk._async.api import AsyncApi, ignored, ref
from atoll.types import ImageAccess, ImageInfo, Progress, VerifyReport

_Images = list[ImageInfo]


class AsyncImages:
    """Lists, pulls, checks and removes the root file systems that sandboxes start from."""

    @staticmethod
    async def list() -> _Images:
        """List the images in the home."""
        with contextlib.closing(AsyncApi()) as api:
            return await api.call("GET", "/v1/images", list[ImageInfo])

    @staticmethod
    async def ensure(
        name: str = "base",
        *,
        on_progress: Callable[[Progress], Any] | None = None,
        access: ImageAccess | None = None,
    ) -> ImageInfo:
        """Make sure that the home has an image.

        ``base`` is built as of today. Another image may be of any age and is pulled if it is missing.

        Args:
            name: A reference such as ``python:3.12``.
            on_progress: Called with progress reports.
            access: For which team, and with which credentials. None means the owner of the home.

        Raises:
            InvalidSpecError: ``name`` is not an image name.
            ImageNotFoundError: The registry has no image of that name.
            ImagePullError: The registry does not deliver the image, or the image is invalid.
            UnsupportedError: There is no such image for this machine.
            ImageBuildError: The image could not be built. The message contains the last output of the build.
            HostError: The host lacks a required program.
            NoSpaceError: The disk under the home is full.
        """
        with contextlib.closing(AsyncApi()) as api:
            return await api.long_call(
                "POST", f"/v1/images/{ref(name)}", ImageInfo, access, on_progress=on_progress
            )

    @staticmethod
    async def pull(name: str, *, on_progress: Callable[[Progress], Any] | None = None) -> ImageInfo:
        """Fetch an image as its registry has it now. Parts that are here already are not fetched again.

        Args:
            name: A reference: ``python:3.12``, ``ghost.example/team/tool:1``, ``tool@sha256:…``.
            on_progress: Called with progress: bytes received and layers unpacked.

        Raises:
            InvalidSpecError: ``name`` is not a reference.
            ImageNotFoundError: The registry has no image of that name.
            ImagePullError: The registry does not deliver the image, or the image is invalid.
            UnsupportedError: There is no such image for this machine.
            NoSpaceError: The disk under the home is full.
        """
        with contextlib.closing(AsyncApi()) as api:
            path = f"/v1/images/{ref(name)}?newest=true"
            return await api.long_call("POST", path, ImageInfo, on_progress=on_progress)

    @staticmethod
    async def get(name: str) -> ImageInfo:
        """Return the info of an image in the home by its name or digest.

        Raises:
            ImageNotFoundError: No image has that name.
        """
        with contextlib.closing(AsyncApi()) as api:
            return await api.call("GET", f"/v1/images/{ref(name)}", ImageInfo)

    @staticmethod
    async def verify(*names: str, on_progress: Callable[[Progress], Any] | None = None) -> VerifyReport:
        """Read the layers of images and report the files that do not match their checksums.

        Without names, check all images. Files without checksums get them; nothing else changes.

        Args:
            names: Names or digests.
            on_progress: Called with how much was read.

        Raises:
            ImageNotFoundError: No image has that name.
        """
        with contextlib.closing(AsyncApi()) as api:
            wanted = VerifyRequest(names=list(names))
            return await api.long_call(
                "POST", "/v1/verified-images", VerifyReport, wanted, on_progress=on_progress or ignored
            )

    @staticmethod
    async def delete(name: str) -> None:
        """Forget a name, and erase the image if that was its last name. Layers of other images stay.

        Raises:
            ImageNotFoundError: No image has that name.
            InUseError: A sandbox or snapshot depends on the image.
        """
        with contextlib.closing(AsyncApi()) as api:
            await api.delete(f"/v1/images/{ref(name)}")
