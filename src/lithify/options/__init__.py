"""What can be tuned per lake and per table: tiers, table options, and the policy that both make."""
