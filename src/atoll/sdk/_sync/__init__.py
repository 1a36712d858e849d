# Made by scripts/unasync.py from sdk/_async/__init__.py: do not edit.
"""The SDK itself. The asynchronous form is written by hand; scripts/unasync.py makes the other from it."""
