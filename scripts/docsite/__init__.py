"""Builds the documentation's site.

`make docs` runs `python -m docsite` in an environment with scripts/locks/docs.txt.
"""
