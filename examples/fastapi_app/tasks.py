"""The tasks that the shop does after its response: it sends the receipt."""

from database import Order, Receipt, Session

from pulse import Context, Pulse, Retry

app = Pulse()


@app.task(retry=Retry(5), timeout="30s")
async def send_receipt(ctx: Context, order_id: int) -> None:
    async with Session.begin() as session:
        order = await session.get_one(Order, order_id)
        session.add(Receipt(order_id=order.id, text=f"{order.email}: {order.quantity} × {order.item}"))
        await session.flush()
        await ctx.complete(session)  # commits together with the receipt, so there is never a second receipt
