"""Programs as users write them, never run: tests/unit/test_typing.py shows them to type checkers."""  # noqa: A005
