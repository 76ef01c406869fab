"""The command line; it starts everything else."""
