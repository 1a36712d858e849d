"""Images: immutable root file systems, built or pulled on first use."""

from atoll.images.catalog import Image
from atoll.images.images import Images
from atoll.images.pull import Stacking
from atoll.images.puller import PullSettings
from atoll.images.reference import image_name

__all__ = ["Image", "Images", "PullSettings", "Stacking", "image_name"]
