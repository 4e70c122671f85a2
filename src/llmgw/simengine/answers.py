"""Decides the bytes of the simulated engine's answers: OpenAI's shapes, vLLM's metric names.

Laws: the same words in the same order, over and over, so that a reader can tell a lost or doubled piece;
a stream's pieces joined are the plain answer; usage is exact.
"""

import msgspec

from llmgw.engines.adapter import VLLM_METRICS
from llmgw.simengine.ask import BadAsk, Work
from llmgw.simengine.options import SimOptions

_WORDS = (
    *("this", "answer", "was", "made", "up", "by", "a", "simulated", "engine"),
    *("that", "knows", "these", "fourteen", "words"),
)
DONE = b"data: [DONE]\n\n"
GARBAGE = b"\x00\xff this is not what was asked for {"


def word(number: int) -> str:
    """The token of a position, from 0; all but the first begin with a space."""
    text = _WORDS[number % len(_WORDS)]
    return text if number == 0 else f" {text}"


class Answer(msgspec.Struct, frozen=True):
    """One answer: who it is to, and the work it was."""

    id: str
    created: int
    model: str
    work: Work

    def plain(self) -> bytes:
        """The whole answer as JSON."""
        text = "".join(word(number) for number in range(self.work.answer_tokens))
        said: dict[str, object] = {"message": {"role": "assistant", "content": text}}
        if not self.work.chat:
            said = {"text": text}
        choice = {"index": 0, **said, "finish_reason": self.work.finish, "logprobs": None}
        kind = "chat.completion" if self.work.chat else "text_completion"
        return msgspec.json.encode({**self._head(kind), "choices": [choice], "usage": self.usage()})

    def opening(self) -> bytes:
        """What comes before the first word of a stream: in chats, the role."""
        return self._chunk({"role": "assistant", "content": ""}, None) if self.work.chat else b""

    def piece(self, number: int) -> bytes:
        """One word of a stream."""
        return self._chunk({"content": word(number)}, None, word(number))

    def ending(self) -> bytes:
        """Why it ends, the usage if it was asked for, and the terminator."""
        usage = b""
        if self.work.ask.wants_usage:
            usage = _event({**self._head(self._kind()), "choices": [], "usage": self.usage()})
        return self._chunk({}, self.work.finish) + usage + DONE

    def usage(self) -> dict[str, int]:
        """Tokens, exactly."""
        prompt, answer = self.work.prompt_tokens, self.work.answer_tokens
        return {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}

    def _kind(self) -> str:
        return "chat.completion.chunk" if self.work.chat else "text_completion"

    def _head(self, kind: str) -> dict[str, object]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def _chunk(self, delta: dict[str, str], finish: str | None, text: str = "") -> bytes:
        said: dict[str, object] = {"delta": delta} if self.work.chat else {"text": text}
        choice = {"index": 0, **said, "finish_reason": finish, "logprobs": None}
        return _event({**self._head(self._kind()), "choices": [choice]})


def _event(value: object) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def refusal(bad: BadAsk) -> bytes:
    """An error as OpenAI's clients read it."""
    kind = "NotFoundError" if bad.status == 404 else "BadRequestError"
    error = {"message": bad.text, "type": kind, "param": bad.param, "code": bad.status}
    return msgspec.json.encode({"error": error})


def models(options: SimOptions, created: int) -> bytes:
    """`/v1/models`: it says itself that it is simulated."""
    model = {
        "id": options.model,
        "object": "model",
        "created": created,
        "owned_by": "llmgw-sim",
        "max_model_len": options.context_length,
    }
    return msgspec.json.encode({"object": "list", "data": [model]})


class Counters(msgspec.Struct):
    """What the engine counts; owned by the engine."""

    running: int = 0
    waiting: int = 0
    held_tokens: int = 0
    prompt_tokens: int = 0
    answer_tokens: int = 0
    finished: int = 0
    aborted: int = 0


def metrics(options: SimOptions, counters: Counters) -> bytes:
    """`/metrics` under vLLM's names."""
    capacity = options.context_length * options.slots
    values = (
        (VLLM_METRICS.running, "gauge", counters.running),
        (VLLM_METRICS.waiting, "gauge", counters.waiting),
        (VLLM_METRICS.kv_usage, "gauge", min(1.0, counters.held_tokens / capacity)),
        (VLLM_METRICS.prompt_tokens, "counter", counters.prompt_tokens),
        (VLLM_METRICS.generated_tokens, "counter", counters.answer_tokens),
        ("vllm:request_success_total", "counter", counters.finished),
    )
    name = options.model.replace("\\", "\\\\").replace('"', '\\"')
    lines = [
        f'# TYPE {metric} {kind}\n{metric}{{engine="0",model_name="{name}"}} {value}\n'
        for metric, kind, value in values
    ]
    return "".join(lines).encode()
