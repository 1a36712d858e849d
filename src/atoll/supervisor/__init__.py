"""The supervisor: the one process of a home that owns its sandboxes. Others reach it over its sockets."""

__all__: list[str] = []
