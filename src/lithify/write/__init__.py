"""From rows to one durable commit."""
