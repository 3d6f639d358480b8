"""What is kept of a run: the journal, the checkpoints, and what can be read from them.

Nothing is imported here: a worker needs the checkpoints only, and should not wait for a database library.
"""
