"""Other Postgres job queues for Python at their best settings, measured from an environment of their own."""
