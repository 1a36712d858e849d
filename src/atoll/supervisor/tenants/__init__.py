"""Teams that share a home: keys, quotas, and what they occupy."""
