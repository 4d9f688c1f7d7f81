"""Where heavy work runs: here, or in a supervised process."""
