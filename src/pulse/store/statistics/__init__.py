"""Statements on figures: counts of jobs, series of events, and what overviews show beside them."""
