"""Items, orders and receipts. They are in the same Postgres as the jobs."""

import os
from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey, func, make_url
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

engine = create_async_engine(make_url(os.environ["DATABASE_URL"]).set(drivername="postgresql+asyncpg"))
Session = async_sessionmaker(engine, expire_on_commit=False)


class Base(DeclarativeBase):
    pass


class Item(Base):
    __tablename__ = "items"

    name: Mapped[str] = mapped_column(primary_key=True)
    stock: Mapped[int] = mapped_column(CheckConstraint("stock >= 0"))


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str] = mapped_column(ForeignKey("items.name"))
    quantity: Mapped[int]
    email: Mapped[str]


class Receipt(Base):
    __tablename__ = "receipts"

    order_id: Mapped[int] = mapped_column(ForeignKey("orders.id"), primary_key=True)
    text: Mapped[str]
    sent_at: Mapped[datetime] = mapped_column(server_default=func.now())
