"""Random kills, damage, configs and environments, seeded: `make torture`."""
