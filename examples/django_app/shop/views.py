"""The views of a small shop: they place an order, and show its receipt."""

import json

from django.db import connection, transaction
from django.db.models import F
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from shop.models import Item, Order, Receipt
from shop.tasks import send_receipt


class OutOfStock(Exception):
    pass


@csrf_exempt
@require_POST
def place_order(request: HttpRequest) -> JsonResponse:
    new = json.loads(request.body)
    try:
        with transaction.atomic():
            order = Order.objects.create(item_id=new["item"], quantity=new["quantity"], email=new["email"])
            job = send_receipt.using(conn=connection).enqueue(order.id)
            take_from_stock(order)  # if it raises, neither the order nor the job is committed
    except OutOfStock as error:
        return JsonResponse({"detail": str(error)}, status=409)
    return JsonResponse({"order": order.id, "job": str(job.id)}, status=201)


def take_from_stock(order: Order) -> None:
    enough = Item.objects.filter(name=order.item_id, stock__gte=order.quantity)
    if not enough.update(stock=F("stock") - order.quantity):
        raise OutOfStock(f"there are not {order.quantity} × {order.item_id}")


@require_GET
def show_order(_: HttpRequest, order_id: int) -> JsonResponse:
    get_object_or_404(Order, pk=order_id)
    receipt = Receipt.objects.filter(order_id=order_id).first()
    return JsonResponse({"receipt": receipt.text if receipt else None})
