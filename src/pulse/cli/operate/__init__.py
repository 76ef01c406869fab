"""Holds the commands that show and control a whole installation."""
