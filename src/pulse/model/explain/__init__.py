"""Why does a job not run? The facts about it, and the explanation that follows from them."""
