"""Who asks: keys, tokens, and limits on how often a client may ask."""
