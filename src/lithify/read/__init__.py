"""From snapshot to plan to rows; history and change feed."""
