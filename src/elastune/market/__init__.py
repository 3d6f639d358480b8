"""Machines that can be taken away: when to rent them, and when not to rely on them."""
