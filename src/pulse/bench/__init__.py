"""How fast is it here? The scenarios behind `pulse bench`."""
