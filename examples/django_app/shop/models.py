"""Items, orders and receipts. They are in the same Postgres as the jobs."""

from django.db import models


class Item(models.Model):
    name = models.CharField(primary_key=True, max_length=100)
    stock = models.PositiveIntegerField()


class Order(models.Model):
    item = models.ForeignKey(Item, on_delete=models.PROTECT)
    quantity = models.PositiveIntegerField()
    email = models.EmailField()


class Receipt(models.Model):
    order = models.OneToOneField(Order, primary_key=True, on_delete=models.CASCADE)
    text = models.TextField()
    sent_at = models.DateTimeField(auto_now_add=True)
