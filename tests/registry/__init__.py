"""A registry on loopback, and images made of archives, for tests that pull."""

from tests.registry.images import File, ImageSource, index_of, packed
from tests.registry.server import Registry, serving

__all__ = ["File", "ImageSource", "Registry", "index_of", "packed", "serving"]
