"""`python -m elastune` is the same as `elastune`."""

from elastune.cli import main

main()
