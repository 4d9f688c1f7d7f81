"""Statements that write: what they say, told by their text alone."""
