"""Connections from clients into sandboxes."""
