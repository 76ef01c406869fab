"""The pages about jobs."""
