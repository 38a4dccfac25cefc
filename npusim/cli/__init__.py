"""The command line: ``npusim COMMAND ...``; nothing is computed here.

One file a command; `npusim.cli.program` lists them, `npusim.cli.running` runs one and turns errors into
exit statuses.
"""

import gc
import sys

from npusim.errors import NpusimError, printable

__all__ = ["main"]


def main() -> None:
    """Run the command line and end the process with its exit status."""
    # What a command builds it mostly keeps: looking for garbage often is a tenth of a short one's time.
    gc.set_threshold(200_000, 20, 20)
    try:
        from npusim.cli.environment import refuse_odd_environment

        refuse_odd_environment()

        from npusim.cli.running import run

        status = run(sys.argv[1:])
    except NpusimError as error:
        print("error:", printable(str(error)), file=sys.stderr)
        status = error.exit_status
    except KeyboardInterrupt:  # while the program was still loading
        status = 130
    if "duckdb" not in sys.modules:  # which complains at the end about what is not freed one by one
        gc.freeze()  # the end of the process frees everything
    sys.exit(status)
