"""WHAT: values and rules, with no I/O."""
