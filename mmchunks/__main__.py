"""``python -m mmchunks`` is the command line."""

from mmchunks.cli.commands import main

main()
