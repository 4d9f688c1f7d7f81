"""`python -m lithify.cli`: the same as the `lithify` command."""

from lithify.cli.start import main

if __name__ == "__main__":
    main()
