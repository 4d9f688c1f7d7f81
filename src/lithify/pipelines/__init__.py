"""Declared steps: declaration, check, pending work, table and file steps, answers."""
