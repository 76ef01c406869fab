"""Addresses: of servers, of targets, of networks."""
