"""E2B's protocol: bodies, views, and translations of its terms."""
