"""The only SQL: one function per statement, rows in, values out."""
