"""What a process counts and logs of its own work."""
