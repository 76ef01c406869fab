"""Use cases of schedules, and the duty that fires them."""
