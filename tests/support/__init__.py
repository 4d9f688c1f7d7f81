"""What tests share: programs with their oracle, child processes, folders."""
