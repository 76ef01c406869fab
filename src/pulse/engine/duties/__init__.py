"""What every process does beside its own work: promote, fire, deliver, reap, prune, tally."""
