"""Running machines: what they are started with, on what they stand, and what is kept ready for them."""
