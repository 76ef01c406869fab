"""Tests of the shop that fail, each with the words in its docstring."""

from __future__ import annotations

from pulse.testing import PulseFixture
from tests.system.plugin_users import shop


def test_nothing(pulse: PulseFixture) -> None:
    """shop.send_receipt(order_id=2) was not enqueued. No job was enqueued."""
    pulse.assert_enqueued(shop.send_receipt, 2)


def test_something_else(pulse: PulseFixture) -> None:
    """shop.send_receipt(order_id=2) was not enqueued. Enqueued jobs:
    shop.send_receipt(order_id=1)  SCHEDULED in 5m
    shop.pick(item='lamp')  PENDING, topic post
    """
    shop.pick.enqueue("lamp")
    shop.send_receipt.using(delay="5m").enqueue(1)
    pulse.assert_enqueued(shop.send_receipt, 2)


def test_after_a_failure(pulse: PulseFixture) -> None:
    """shop.charge(amount=2.0) was not enqueued. Enqueued jobs:
    shop.charge(amount=9.5)  RETRYING in 10s, ConnectionError: attempt 1: the bank does not answer
    """
    shop.charge.enqueue(9.5)
    pulse.drain()
    pulse.assert_enqueued(shop.charge, 2.0)


def test_too_often(pulse: PulseFixture) -> None:
    """shop.refuse() was enqueued twice, not once. Enqueued jobs:
    shop.refuse()  PENDING
    shop.refuse()  PENDING
    """
    shop.app.enqueue_many([shop.refuse.call(), shop.refuse.call()])
    pulse.assert_enqueued(shop.refuse, times=1)


def test_not_wanted(pulse: PulseFixture) -> None:
    """shop.send_receipt(to='ada') was enqueued once:
    shop.send_receipt(to='ada', order_id=1)  PENDING
    """
    shop.send_receipt.enqueue(1, to="ada")
    pulse.refute_enqueued(shop.send_receipt, to="ada")


def test_misspelt(pulse: PulseFixture) -> None:
    """shop.send_receipt: got an unexpected keyword argument 'oder_id'; it takes (order_id: int,"""
    pulse.assert_enqueued(shop.send_receipt, oder_id=2)


def test_by_name_only(pulse: PulseFixture) -> None:
    """give the arguments of 'shop.send_receipt' by name"""
    pulse.assert_enqueued("shop.send_receipt", 2)


def test_an_error_that_is_wanted(pulse: PulseFixture) -> None:
    """a run failed:
    shop.refuse(): no such order
    """
    shop.refuse.enqueue()
    pulse.drain(raise_errors=True)


def test_a_startup_hook_that_fails(pulse: PulseFixture) -> None:
    """RuntimeError: no network"""

    def fail() -> None:
        raise RuntimeError("no network")

    shop.warehouse.startup_hooks[:] = [fail]
    try:
        shop.pick.enqueue("lamp")
        pulse.drain()
    finally:
        shop.warehouse.startup_hooks.clear()
