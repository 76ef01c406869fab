"""How does an operator set, see and change alarms?"""
