"""Identifies clients by keys and tokens, and limits how often a client may ask."""
