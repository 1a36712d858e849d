"""Templates with tools inside that atoll ships, such as the code interpreter. Each is built from its definition."""

from atoll.toolkits.catalog import SHIPPED, install, install_async

__all__ = ["SHIPPED", "install", "install_async"]
