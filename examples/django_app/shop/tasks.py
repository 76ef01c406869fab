"""What the shop does after it has answered."""

from django.db import close_old_connections, connection, transaction

from pulse import Context, Pulse, Retry
from shop.models import Order, Receipt

app = Pulse()


@app.task(retry=Retry(5), timeout="30s")
def send_receipt(ctx: Context, order_id: int) -> None:
    close_old_connections()  # a worker's thread outlives a connection that has gone bad
    with transaction.atomic():
        order = Order.objects.get(pk=order_id)
        Receipt.objects.create(order=order, text=f"{order.email}: {order.quantity} × {order.item_id}")
        ctx.complete(connection)  # commits with the receipt, so that there is never a second one
