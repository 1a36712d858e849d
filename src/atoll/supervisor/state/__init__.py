"""Holds the supervisor's knowledge: rows, registry, operation log, and basics that all other rooms use."""
