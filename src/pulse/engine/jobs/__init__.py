"""Use cases of jobs: of those who enqueue, of operators, and of workers."""
