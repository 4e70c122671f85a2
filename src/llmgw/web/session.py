"""Decides whether a cookie is a session of ours and a form comes from our own page (S2).

Laws: nothing is kept here; a cookie is valid when it was signed with the admin token and has not
expired, so a restart logs nobody out and a new token logs everybody out; secrets are compared in
constant time.
"""

import hashlib
import hmac

SESSION_S = 12 * 3600.0  # one working day; the token itself stays valid


def same(given: bytes, right: bytes) -> bool:
    """Compare two secrets in a time that says nothing about where they differ."""
    return hmac.compare_digest(hashlib.sha256(given).digest(), hashlib.sha256(right).digest())


class Sessions:
    """Makes and checks session cookies and their form tokens."""

    def __init__(self, token: str) -> None:
        self._key = token.encode()

    def is_token(self, given: bytes) -> bool:
        """Whether this is the admin token."""
        return same(given, self._key)

    def cookie(self, now: float) -> str:
        """A cookie value good for `SESSION_S` from `now`."""
        expires = str(int(now + SESSION_S))
        return f"{expires}.{self._sign('session', expires)}"

    def is_session(self, cookie: str, now: float) -> bool:
        """Whether a cookie value is ours and still good."""
        expires, _, signature = cookie.partition(".")
        if not same(signature.encode(), self._sign("session", expires).encode()):
            return False
        return now < int(expires)  # digits, or the signature would not be ours

    def form_token(self, cookie: str) -> str:
        """What a form or script sent with the session must carry (CSRF)."""
        return self._sign("form", cookie)

    def is_form_token(self, given: str, cookie: str) -> bool:
        """Whether a form was made for the session."""
        return same(given.encode(), self.form_token(cookie).encode())

    def _sign(self, what: str, text: str) -> str:
        return hmac.new(self._key, f"{what}:{text}".encode(), hashlib.sha256).hexdigest()
