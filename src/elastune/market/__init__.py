"""Machines that may be taken away: what they cost, how long they last, and which to take."""
