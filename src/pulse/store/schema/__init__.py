"""The schema, how it comes to be, and whether it suits this release."""
