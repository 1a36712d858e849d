"""Connects clients to sandboxes."""
