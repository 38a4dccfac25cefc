"""The command line: ``npusim COMMAND ...``; nothing is computed here.

One file a command; `npusim.cli.program` lists them, `npusim.cli.running` runs one and turns errors into
exit statuses.
"""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and end the process with its exit status."""
    try:
        from npusim.cli.running import run

        status = run(sys.argv[1:])
    except KeyboardInterrupt:  # while the program was still loading
        status = 130
    sys.exit(status)
