"""Pong in the browser, against a policy that learns meanwhile."""
