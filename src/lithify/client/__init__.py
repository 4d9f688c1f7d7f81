"""A lake behind a service: the methods of `Lake` and `Table` over HTTP. Nothing is decided here."""
