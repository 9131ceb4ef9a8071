"""A server's control endpoints: plain requests with a whole-answer deadline, no proxies and no redirects."""

from __future__ import annotations

from typing import Any

# A byte audit reads every expert once; 70 GB at some GB/s are well under a minute.
ANSWER_WITHIN_S = 120.0


def post_json(url: str, api_key: str | None) -> dict[str, Any] | None:
    """POST without a body; return the JSON object of a 200 answer, None for anything else (404, no JSON, no answer)."""
    import requests

    headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
    with requests.Session() as session:
        session.trust_env = False
        try:
            answer = session.post(url, headers=headers, timeout=ANSWER_WITHIN_S, allow_redirects=False)
            body = answer.json() if answer.status_code == requests.codes.ok else None
        except (requests.RequestException, ValueError):
            return None
    return body if isinstance(body, dict) else None
