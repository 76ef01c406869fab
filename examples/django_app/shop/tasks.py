"""The tasks that the shop does after its response: it sends the receipt."""

from django.db import close_old_connections, connection, transaction

from pulse import Context, Pulse, Retry
from shop.models import Order, Receipt

app = Pulse()


@app.task(retry=Retry(5), timeout="30s")
def send_receipt(ctx: Context, order_id: int) -> None:
    close_old_connections()  # a worker's thread may have a connection that was lost since its last job
    with transaction.atomic():
        order = Order.objects.get(pk=order_id)
        Receipt.objects.create(order=order, text=f"{order.email}: {order.quantity} × {order.item_id}")
        ctx.complete(connection)  # commits together with the receipt, so there is never a second receipt
