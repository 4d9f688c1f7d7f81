"""The command line: translates arguments to calls and answers to text or JSON. It decides nothing."""
