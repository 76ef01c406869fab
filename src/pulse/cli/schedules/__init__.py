"""How does an operator make, see and change schedules?"""
