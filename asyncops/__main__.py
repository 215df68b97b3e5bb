"""``python -m asyncops``."""

from asyncops.lint.cli import main

if __name__ == "__main__":
    main()
