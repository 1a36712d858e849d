"""Images: immutable root file systems, built on first use."""

from atoll.images.images import Image, Images

__all__ = ["Image", "Images"]
