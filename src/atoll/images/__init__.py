"""Images: immutable root file systems.

An image is built, unpacked from the package atoll-base, or pulled on its first use.
"""

from atoll.images.catalog import Image
from atoll.images.images import Images
from atoll.images.near import with_near_templates
from atoll.images.owners import Owner
from atoll.images.pull import Stacking
from atoll.images.puller import PullSettings
from atoll.images.ready import About, ReadyBase, ready_base
from atoll.images.reference import image_name

__all__ = [
    "About",
    "Image",
    "Images",
    "Owner",
    "PullSettings",
    "ReadyBase",
    "Stacking",
    "image_name",
    "ready_base",
    "with_near_templates",
]
