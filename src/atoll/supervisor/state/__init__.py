"""Holds the supervisor's knowledge: rows, inventory, operation log, and basics that all other rooms use."""
