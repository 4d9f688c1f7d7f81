"""The JSON documents that the service answers with."""
