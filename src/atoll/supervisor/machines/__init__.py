"""Runs machines: starts and ends them, keeps some ready, and holds them to their limits."""
