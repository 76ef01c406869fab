"""Statements on jobs: those of people who submit them, of workers, of operators, and of the duties."""
