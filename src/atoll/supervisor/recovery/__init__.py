"""Recovers what an earlier supervisor left, and removes leftovers."""
