"""Every figure that the README quotes, measured: each a ratio against the alternative in the same run."""
