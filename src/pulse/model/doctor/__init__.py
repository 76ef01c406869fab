"""The facts that `pulse doctor` collects, and how it judges them."""
