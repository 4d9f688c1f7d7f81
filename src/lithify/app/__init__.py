"""Composition: builds the pieces from settings."""
