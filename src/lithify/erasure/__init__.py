"""Erasing rows from a table, its past and its files, with a receipt that says what was checked."""
