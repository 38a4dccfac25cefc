"""Runs the command line as ``python -m npusim``."""

from npusim.cli import main

if __name__ == "__main__":
    main()
