"""``python -m mmchunks`` is the command line."""

from mmchunks.cli import main

main()
