"""The ``atoll`` command: a thin face that does nothing the SDK cannot do."""
