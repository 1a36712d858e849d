"""The supervisor: the one process that owns a home's sandboxes. Other processes reach it over its sockets."""

__all__: list[str] = []
