"""`python -m antiphon.server.cli`, for machines where the command is not on the path."""

from antiphon.server.cli import main

main()
