"""Recovers the sandboxes of an earlier supervisor, and removes leftovers."""
