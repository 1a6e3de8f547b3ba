"""python -m baldwin."""

from baldwin.cli.main import main

if __name__ == "__main__":
    main()
