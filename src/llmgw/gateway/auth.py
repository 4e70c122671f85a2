"""Decides whose request it is: the key in its headers, looked up once in the table (K2).

Laws: one lookup and one compare, in constant time, also when nothing is found; no answer and no log
holds what was sent; which of unknown, wrong, disabled and expired it was is not told to the sender.
"""

from llmgw.core.accounts import parse_key, secret_matches
from llmgw.core.refusal import Code, Refuse
from llmgw.gateway.state import Table
from llmgw.ports import RequestHead
from llmgw.wire.watch_v1 import KeyEntry

NO_KEY = Refuse(
    Code.INVALID_API_KEY, "No API key was sent: add the header `Authorization: Bearer sk-llmgw-…`."
)
BAD_KEY = Refuse(
    Code.INVALID_API_KEY,
    "The API key is not valid here: it is unknown, expired or disabled. Ask for a new one.",
)


def authenticate(head: RequestHead, table: Table, now: float) -> KeyEntry | Refuse:
    """The key of a request, or why it has none; `now` is wall time."""
    scheme, _, text = (head.header(b"authorization") or b"").partition(b" ")
    text = text.strip()
    if not text:
        return NO_KEY
    if scheme.lower() != b"bearer":
        return BAD_KEY
    parsed = parse_key(text.decode("latin-1"))
    public_id, secret = parsed or ("", "")
    entry = table.keys.get(public_id)
    matches = secret_matches(secret, entry.secret_sha256 if entry else None)
    if entry is None or not matches or entry.disabled:
        return BAD_KEY
    if entry.expires_at is not None and now >= entry.expires_at:
        return BAD_KEY
    return entry
