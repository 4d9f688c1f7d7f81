"""The service: a lake over HTTP. It translates requests into calls of the lake, and answers and errors back."""
