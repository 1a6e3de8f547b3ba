"""Short programs on the parts of Baldwin; each runs by itself."""
