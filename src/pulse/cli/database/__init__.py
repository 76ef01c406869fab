"""Holds the commands for the schema and the embedded Postgres."""
