"""The dashboard, where people see what happens and act on it, on pages that update themselves."""
