"""Applications as users write them, for tests that need another process to import one."""
