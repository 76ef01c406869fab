"""Holds `pulse demo` and `pulse dev`, for developers who try Pulse or work on an application."""
