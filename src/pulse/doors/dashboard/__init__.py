"""How do people see what happens, and steer it? On pages that update themselves, with the deeds an operator needs."""
