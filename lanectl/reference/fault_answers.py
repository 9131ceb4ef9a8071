"""Faults of HTTP answers, in front of the service: other status codes, another model name, refused fields."""

from __future__ import annotations

import json

from lanectl.reference.faults import Faults
from lanectl.reference.fields import ApiError
from lanectl.reference.http import Exchange, Handler
from lanectl.reference.shapes import encoded


def faulty_handler(handler: Handler, faults: Faults) -> Handler:
    """Given the service's handler, return one that misbehaves as asked, and else passes on."""

    def handle(exchange: Exchange) -> None:
        if not (_other_code(exchange, faults) or _other_model(exchange, faults) or _refused(exchange, faults)):
            handler(exchange)

    return handle


def _other_code(exchange: Exchange, faults: Faults) -> bool:
    if "answer" not in faults:
        return False
    code, prefix = faults.coded("answer")
    if not exchange.request.path.startswith(prefix):
        return False
    elsewhere = [("location", "http://127.0.0.1:9/elsewhere")] if 300 <= code < 400 else []
    body = encoded({"error": "Unauthorized"}) if code == 401 else b""
    exchange.reply(code, body, headers=elsewhere)
    return True


def _other_model(exchange: Exchange, faults: Faults) -> bool:
    if "wrong-model" not in faults or exchange.request.path != "/v1/models":
        return False
    card = {"id": faults.text("wrong-model"), "object": "model", "max_model_len": 1}
    exchange.reply(200, encoded({"object": "list", "data": [card]}))
    return True


def _refused(exchange: Exchange, faults: Faults) -> bool:
    if "reject" not in faults or exchange.request.method != "POST":
        return False
    field = faults.text("reject")
    try:
        body = json.loads(exchange.request.body)
    except ValueError:
        return False
    if not isinstance(body, dict) or field not in body:
        return False
    problem = ApiError(400, f"Unknown field: '{field}': Extra inputs are not permitted", param=field)
    exchange.reply(400, encoded(problem.payload()))
    return True
