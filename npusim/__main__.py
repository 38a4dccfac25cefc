"""``python -m npusim``: the side door to the same command line, for where no script is on the path."""

from npusim.cli import main

if __name__ == "__main__":
    main()
