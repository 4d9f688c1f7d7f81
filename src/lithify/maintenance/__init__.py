"""Fold, merge changes, compact, optimize, vacuum: when (triggers), what (plans), how, and the cycle that runs them."""
