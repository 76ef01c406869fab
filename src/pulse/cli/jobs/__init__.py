"""How does an operator find, read, cancel and replay jobs?"""
