"""Tasks of an app that lives in another module."""

from tests.sdk.apps.split_app import app


@app.task(executor="process")
def elsewhere() -> str:
    return "found"
