"""`python -m lithify.cli`: the same as the `lithify` command."""

from lithify.cli.main import main

if __name__ == "__main__":
    main()
