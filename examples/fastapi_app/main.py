"""The API of a small shop: it places an order, and shows its receipt."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from database import Base, Item, Order, Receipt, Session, engine
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, PositiveInt
from sqlalchemy import update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession
from tasks import send_receipt


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with engine.begin() as conn:
        await conn.run_sync(Base.metadata.create_all)
        await conn.execute(insert(Item).values(name="lamp", stock=10).on_conflict_do_nothing())
    yield
    await engine.dispose()


api = FastAPI(title="A shop", lifespan=lifespan)


class NewOrder(BaseModel):
    item: str
    quantity: PositiveInt
    email: str


@api.post("/orders", status_code=201)
async def place_order(new: NewOrder) -> dict[str, int | str]:
    async with Session.begin() as session:
        order = Order(**new.model_dump())
        session.add(order)
        await session.flush()  # gives the order its id
        job = await send_receipt.using(conn=session).aenqueue(order.id)
        await take_from_stock(session, order)  # if it raises, neither the order nor the job is committed
    return {"order": order.id, "job": str(job.id)}


async def take_from_stock(session: AsyncSession, order: Order) -> None:
    enough = update(Item).where(Item.name == order.item, Item.stock >= order.quantity).returning(Item.stock)
    if await session.scalar(enough.values(stock=Item.stock - order.quantity)) is None:
        raise HTTPException(409, f"there are not {order.quantity} × {order.item}")


@api.get("/orders/{order_id}")
async def show_order(order_id: int) -> dict[str, str | None]:
    async with Session() as session:
        if await session.get(Order, order_id) is None:
            raise HTTPException(404, f"no order {order_id}")
        receipt = await session.get(Receipt, order_id)
    return {"receipt": receipt.text if receipt else None}
