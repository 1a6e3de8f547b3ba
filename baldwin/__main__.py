"""Lets `python -m baldwin` run the command line."""

from baldwin.cli.main import main

if __name__ == "__main__":
    main()
