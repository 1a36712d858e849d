"""Tools on an async sandbox."""
