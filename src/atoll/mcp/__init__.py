"""`atoll mcp`: sandboxes as tools of the Model Context Protocol. A face above the SDK; run it with ``python -m``."""
