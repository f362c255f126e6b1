"""`python -m fastsim` is the `fastsim` command."""

from fastsim.cli import main

if __name__ == "__main__":
    main()
