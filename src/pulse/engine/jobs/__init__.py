"""Use cases of jobs, for producers, operators and workers."""
