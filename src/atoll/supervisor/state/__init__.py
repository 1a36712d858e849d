"""Holds what the supervisor knows: rows, registry, operation log, and basics that all other rooms use."""
