"""How statements reach Postgres, and how processes notify each other through it."""
