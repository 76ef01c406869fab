"""How does an operator make the schema, and a developer run the embedded Postgres?"""
