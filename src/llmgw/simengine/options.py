"""What a simulated engine pretends to be: how fast, how many at a time, and how it fails."""

import msgspec

from llmgw.core.units import MIB

BODY_MAX = 32 * MIB


class SimOptions(msgspec.Struct, frozen=True):
    """Speeds are tokens a second; the counts of failures are requests, 0 means never."""

    model: str
    key: str = ""  # asked of everyone but /health
    context_length: int = 8192
    slots: int = 8  # requests decoded at a time; others wait
    prefill_rate: float = 20_000.0
    decode_rate: float = 60.0  # of each request
    answer_tokens: int = 64  # when a request says nothing
    startup_s: float = 0.0  # until /health says yes
    crash_after: int = 0  # dies in the middle of that request's answer
    hang_after: int = 0  # from that request on, nothing is answered
    garbage_after: int = 0  # from that request on, answers are not what they should be
    oom: bool = False  # does not start
