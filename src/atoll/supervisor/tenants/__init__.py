"""Manages the teams that share a home: their keys, quotas and disk usage."""
