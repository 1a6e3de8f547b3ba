"""A person speaks: parsing and printing only."""
