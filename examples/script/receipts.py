"""Write a receipt for every order, and print the files."""

from pathlib import Path

from pulse import Pulse, Retry

app = Pulse()

ORDERS = [(1, "ada@example.com", 19.99), (2, "grace@example.com", 5.00), (3, "alan@example.com", 42.50)]


@app.task(retry=Retry(5, on=(OSError,)), timeout="30s")
def write_receipt(order_id: int, email: str, total: float) -> str:
    """Write the receipt of an order. If a worker dies, the task may run twice, and then writes the same file again."""
    folder = Path("receipts")
    folder.mkdir(exist_ok=True)
    receipt = folder / f"{order_id}.txt"
    receipt.write_text(f"Thank you, {email}! You paid {total:.2f}.\n")
    return str(receipt)


if __name__ == "__main__":
    handles = app.enqueue_many(write_receipt.call(*order) for order in ORDERS)
    print(f"enqueued {len(handles)} receipts")
    for handle in handles:
        print("wrote", handle.result(timeout=30))
