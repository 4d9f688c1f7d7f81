"""Rows in and out over HTTP: JSON, Arrow, and which of them a request means."""
