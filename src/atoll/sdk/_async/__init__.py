"""The SDK itself. The asynchronous form is written by hand; scripts/unasync.py makes the other from it."""
