"""The ``atoll`` command: a thin layer that does nothing the SDK cannot do."""
