"""Use cases of alarms, and the duty that delivers them."""
