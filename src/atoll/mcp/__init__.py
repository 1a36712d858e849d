"""`atoll mcp`: sandboxes as tools of the Model Context Protocol.

It is a face above the SDK; run it with ``python -m``.
"""
