"""The hub's requests: from method, path and body to a message and an HTTP status."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Union

from nodevitals.probes.fabric.order_book import OrderBook
from nodevitals.probes.fabric.orders import (
    MAX_WAIT_SECONDS,
    ORDERS_PATH,
    Order,
    OrderRefused,
    OrderStatus,
)
from nodevitals.probes.fabric.protocol import parse

Response = tuple[HTTPStatus, Union[OrderStatus, OrderRefused]]

_PATH = re.compile(rf"{ORDERS_PATH}/([a-zA-Z0-9-]{{8,64}})(?:\?wait=([0-9]{{1,4}}))?")


class OrderPath:
    """The path of a request for an order. Raises ValueError for any other path."""

    def __init__(self, path: str) -> None:
        match = _PATH.fullmatch(path)
        if match is None:
            raise ValueError(f"write {ORDERS_PATH}/ID, or {ORDERS_PATH}/ID?wait=SECONDS")
        self.identity = match[1]
        self.wait_seconds = min(float(match[2] or 0), MAX_WAIT_SECONDS)


def put(orders: OrderBook, path: OrderPath, body: bytes) -> Response:
    """Accept an order, or refuse it."""
    try:
        order = parse(body, Order)
    except ValueError as error:
        return _answer(orders.refuse("invalid", str(error)[:300]))
    if order.id != path.identity:
        return _answer(orders.refuse("invalid", "the path has another id"))
    return _answer(orders.put(order))


def get(orders: OrderBook, path: OrderPath) -> Response:
    """The state of an order; waits for its end where the path says so."""
    return _answer(orders.get(path.identity, path.wait_seconds))


def delete(orders: OrderBook, path: OrderPath) -> Response:
    """End an order."""
    return _answer(orders.cancel(path.identity))


def _answer(message: Union[OrderStatus, OrderRefused]) -> Response:
    if isinstance(message, OrderStatus):
        return HTTPStatus.OK, message
    forbidden = message.refusal == "forbidden"
    return HTTPStatus.FORBIDDEN if forbidden else HTTPStatus.CONFLICT, message
