"""SQL that writes: from a statement to one commit."""
