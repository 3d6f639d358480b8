"""Tuning as a service for many teams: a function of one SQL database."""
