"""Copies of a lake elsewhere: made while it is written to, each time of what is new alone, and brought back."""
