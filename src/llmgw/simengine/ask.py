"""Decides what a request to the simulated engine asks for, and what cannot be answered.

Laws: tolerant of everything it does not simulate; a token is four characters of the prompt, or a word of
the answer; what a real engine refuses with 400 is refused with 400.
"""

import msgspec

from llmgw.simengine.options import SimOptions

CHARACTERS_A_TOKEN = 4


class _Part(msgspec.Struct, frozen=True):
    text: str = ""


class _Message(msgspec.Struct, frozen=True):
    content: str | list[_Part] | None = None


class _StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool = False


class Ask(msgspec.Struct, frozen=True):
    """The part of an OpenAI request that matters here."""

    model: str = ""
    messages: list[_Message] = []
    prompt: str | list[str | int] = ""
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stream: bool = False
    stream_options: _StreamOptions | None = None

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with a usage chunk."""
        return self.stream_options is not None and self.stream_options.include_usage


class Work(msgspec.Struct, frozen=True):
    """What answering costs."""

    ask: Ask
    chat: bool
    prompt_tokens: int
    answer_tokens: int
    finish: str


class BadAsk(msgspec.Struct, frozen=True):
    """A request refused with 400 (404 for a model that is not served)."""

    text: str
    param: str | None = None
    status: int = 400


def read_ask(body: bytes, options: SimOptions, *, chat: bool) -> Work | BadAsk:
    """The work a request is, or why it is refused."""
    try:
        ask = msgspec.json.decode(body, type=Ask)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return BadAsk(f"the request cannot be read: {error}")
    if ask.model != options.model:
        return BadAsk(
            f"the model {ask.model} does not exist; this engine serves {options.model}", "model", 404
        )
    prompt = _prompt_tokens(ask, chat)
    if not prompt:
        return BadAsk("the prompt is empty", "messages" if chat else "prompt")
    wanted = ask.max_tokens if ask.max_completion_tokens is None else ask.max_completion_tokens
    if wanted is not None and wanted < 1:
        return BadAsk(f"max_tokens must be at least 1, not {wanted}", "max_tokens")
    room = options.context_length - prompt
    if room < (wanted or 1):
        holds = f"the context holds {options.context_length} tokens"
        text = f"{holds}; a prompt of {prompt} and an answer of {wanted or 1} do not fit"
        return BadAsk(text, "input_tokens")
    natural = min(options.answer_tokens, room)
    answer = natural if wanted is None else wanted
    return Work(ask, chat, prompt, answer, "stop" if wanted is None else "length")


def _prompt_tokens(ask: Ask, chat: bool) -> int:
    if chat:
        texts = [_text(message.content) for message in ask.messages]
        characters = sum(len(text) for text in texts) + CHARACTERS_A_TOKEN * len(texts)
    elif isinstance(ask.prompt, str):
        characters = len(ask.prompt)
    else:
        characters = sum(len(p) if isinstance(p, str) else CHARACTERS_A_TOKEN for p in ask.prompt)
    return -(-characters // CHARACTERS_A_TOKEN)


def _text(content: str | list[_Part] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.text for part in content)
