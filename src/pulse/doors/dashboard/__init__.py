"""How do people see what happens, and steer it? On pages that update themselves, with the few deeds an operator needs."""
