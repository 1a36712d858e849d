# Made by scripts/unasync.py from tools/_async/__init__.py: do not edit.
"""Tools on an async sandbox."""
