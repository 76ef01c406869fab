"""Why does a job not run? The facts, and the one sentence they come to."""
