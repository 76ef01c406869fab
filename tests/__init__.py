"""Tests: real Postgres, real processes."""
