"""The maths, pure: no networks, no devices, no environments, no logging."""
