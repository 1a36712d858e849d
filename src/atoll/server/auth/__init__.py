"""Who asks: keys, tokens, and how often somebody may ask."""
