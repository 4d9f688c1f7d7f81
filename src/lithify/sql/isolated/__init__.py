"""Queries in processes of their own, which the operating system holds to their limits."""
