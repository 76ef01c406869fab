"""The module that `pulse worker shop.worker:app` imports. It sets up Django, and then imports the tasks."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
django.setup()

from shop.tasks import app  # noqa: E402

__all__ = ["app"]
