"""Rounds in which something is killed in the middle of an operation, and what must be true afterwards."""
