"""Hot tables and kept results: they never change an answer."""
