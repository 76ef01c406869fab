"""What users import: tasks, handles, the worker."""
