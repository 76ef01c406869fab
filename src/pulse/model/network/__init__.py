"""Addresses of servers, of the targets of alarms, and of networks."""
