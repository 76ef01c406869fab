"""Statements on alarms, on their deliveries, and on the secrets that sign them."""
