"""Watches running and paused sandboxes."""
