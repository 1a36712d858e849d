"""Builds of templates that this server runs."""
