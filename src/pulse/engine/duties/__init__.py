"""The duties that every process performs besides its own work: promote, fire, deliver, reap, prune, tally."""
