"""`python -m tui` is `exoctl`."""

from tui.cli import main

if __name__ == "__main__":
    main()
