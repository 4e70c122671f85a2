"""Writes a tiny, valid llama-architecture model, so that a real engine in a test costs a tenth of a second.

Laws: standard library only; the same options give the same bytes. Attention and feed-forward weights are
small noise, so the engine does a transformer's real work, while embeddings and output matrix give every
token one likely successor: decoding greedily answers `ANSWER`, whatever was asked, and then ends its turn.
A larger `width` and more `layers` make a slower model.
"""

import itertools
import math
import random
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

_PIECES = (
    *("Hello", " from", " a", " tiny", " model", " that", " always", " gives", " this", " same"),
    *(" short", " answer", " so", " tests", " can", " check", " every", " token", "."),
)
ANSWER = "".join(_PIECES)
ANSWER_TOKENS = len(_PIECES) + 1  # and the one that ends the turn

_WORDS = (
    *("\n\n", " the", " system", " user", " assistant", " tool", " call", " name", " arguments", "user"),
    *("assistant", "system", "tool", "content", "name", "arguments", "function"),
)
_START, _TURN, _END = _SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_CALL = '<tool_call>\n{"name": "'
_TEMPLATE = """\
{%- if tools %}{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
{{- 'You may call these functions:\\n<tools>' }}
{%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}
{{- '\\n</tools>\\nTo call one, answer with\\n<tool_call>\\n' }}
{{- '{"name": <name>, "arguments": <object>}\\n</tool_call><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}{%- endif %}
{%- for m in messages %}
{%- if m.role == 'user' or (m.role == 'system' and not loop.first) %}
{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
{%- elif m.role == 'assistant' %}{{- '<|im_start|>assistant' }}
{%- if m.content %}{{- '\\n' + m.content }}{%- endif %}
{%- for t in m.tool_calls or [] %}{%- if t.function %}{%- set t = t.function %}{%- endif %}
{{- '\\n<tool_call>\\n{"name": "' + t.name + '", "arguments": ' + (t.arguments | tojson) }}
{{- '}\\n</tool_call>' }}{%- endfor %}{{- '<|im_end|>\\n' }}
{%- elif m.role == 'tool' %}
{{- '<|im_start|>user\\n<tool_response>\\n' + m.content + '\\n</tool_response><|im_end|>\\n' }}
{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}
{%- if tools and messages[-1].role == 'user' %}{{- '\\n' }}{%- endif %}{%- endif %}"""


class Shape(NamedTuple):
    """How large the model is; four heads read two key heads, and every layer is alike."""

    layers: int = 2
    width: int = 256
    context: int = 32768
    heads: int = 4
    key_heads: int = 2
    seed: int = 1
    name: str = "llmgw-tiny"


class _Tensor(NamedTuple):
    name: str
    shape: tuple[int, ...]  # rows first
    kind: int
    data: bytes


_F32, _F16 = 0, 1


def write_tiny_gguf(path: Path, shape: Shape | None = None) -> None:
    """Write the model; 2.8 MB and 0.15 s with the usual shape."""
    chosen = shape or Shape()
    words = _Vocabulary()
    path.write_bytes(_file(chosen, words, list(_tensors(chosen, words))))


# ---------------------------------------------------------------- words


class _Vocabulary:
    """Bytes, the pieces the answer is made of with the merges that build them, and control tokens."""

    def __init__(self) -> None:
        letters = _byte_letters()
        self.tokens = [letters[byte] for byte in range(256)]
        self.merges: list[str] = []
        self.index = {token: number for number, token in enumerate(self.tokens)}
        for word in (*_PIECES, *_WORDS):
            spelled = "".join(letters[byte] for byte in word.encode())
            for length in range(2, len(spelled) + 1):
                piece = spelled[:length]
                if piece not in self.index:
                    self._add(piece)
                    self.merges.append(f"{piece[:-1]} {piece[-1]}")
        for special in (*_SPECIAL, _CALL):
            self._add(special)
        while len(self.tokens) % 32:
            self.tokens.append(f"<|unused{len(self.tokens)}|>")
        self.answer = [self.index["".join(letters[b] for b in piece.encode())] for piece in _PIECES]
        self.blank_line = self.index[letters[10] * 2]

    def _add(self, token: str) -> None:
        self.index[token] = len(self.tokens)
        self.tokens.append(token)

    def kinds(self) -> list[int]:
        """What GGUF calls each token: normal, control, user-defined or unused."""
        return [_kind(token) for token in self.tokens]


def _kind(token: str) -> int:
    if token in _SPECIAL:
        return 3
    if token == _CALL:
        return 4
    return 5 if token.startswith("<|unused") else 1


def _byte_letters() -> dict[int, str]:
    """The usual map from bytes to printable characters of byte-pair vocabularies."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    letters: dict[int, str] = {}
    spare = 256
    for byte in range(256):
        if byte in printable:
            letters[byte] = chr(byte)
        else:
            letters[byte], spare = chr(spare), spare + 1
    return letters


# ---------------------------------------------------------------- weights


class _Successors:
    """Embeddings and the output matrix, in which each token prefers the ones that may follow it."""

    def __init__(self, shape: Shape, words: _Vocabulary, rng: random.Random) -> None:
        self._shared = shape.width // 4  # this part says "any byte or control token", the rest is its own
        self._width = shape.width
        own = shape.width - self._shared
        self._gain = 20.0 / own
        self.embedding = [
            [float(number < 256 or token in _SPECIAL)] * self._shared
            + [rng.choice((-1.0, 1.0)) for _ in range(own)]
            for number, token in enumerate(words.tokens)
        ]
        small = 0.02 * self._gain
        self.output = [[rng.choice((-small, small)) for _ in range(shape.width)] for _ in words.tokens]
        self._link(words)

    def _follows(self, before: int, after: int, weight: float) -> None:
        for column in range(self._shared, self._width):
            self.output[after][column] += weight * self._gain * self.embedding[before][column]

    def _likely(self, token: int, weight: float) -> None:
        for column in range(self._shared):
            self.output[token][column] += weight * self._gain * (self._width / self._shared - 1)

    def _link(self, words: _Vocabulary) -> None:
        index, answer = words.index, words.answer
        for before, after in itertools.pairwise(answer):
            self._follows(before, after, 1.0)
        self._follows(words.blank_line, index[_CALL], 1.0)  # the template ends so where tools are offered
        for token, weight in ((answer[0], 1.0), (index['"'], 0.55), (index["}"], 0.7)):
            self._likely(token, weight)
        for letter, weight in ((":", 0.6), ("]", 0.4), ("7", 0.3)):
            self._likely(index[letter], weight)
        for letter in ('"', "7", "]"):  # under a grammar: between the members of an object
            self._follows(index[letter], index[","], 0.3)
        self._follows(index["}"], 10, 0.65)
        self._follows(10, index["<"], 0.5)
        self._follows(10, index[","], 0.25)
        self._follows(index[">"], index[_END], 1.6)  # after a call, the turn ends
        self._follows(answer[-1], index[_END], 3.0)
        self._follows(answer[-1], index['"'], 1.6)
        for number, word in enumerate(words.tokens):
            half_a_letter = 128 <= number < 256
            if half_a_letter or (word in _SPECIAL and word != _END) or word.startswith("<|unused"):
                self._likely(number, -1.0)


def _tensors(shape: Shape, words: _Vocabulary) -> Iterator[_Tensor]:
    rng = random.Random(shape.seed)
    wide, inner = shape.width, 2 * shape.width
    keys = shape.width // shape.heads * shape.key_heads
    successors = _Successors(shape, words, rng)
    yield _Tensor("token_embd.weight", (len(words.tokens), wide), _F16, _rows(successors.embedding))
    ones = struct.pack(f"<{wide}f", *([1.0] * wide))
    for layer in range(shape.layers):
        for name, sizes, exponent in (
            *(("attn_q", (wide, wide), -5), ("attn_k", (keys, wide), -5), ("attn_v", (keys, wide), -5)),
            *(("attn_output", (wide, wide), -10), ("ffn_gate", (inner, wide), -5)),
            *(("ffn_up", (inner, wide), -5), ("ffn_down", (wide, inner), -10)),
        ):
            noise = _noise(rng, math.prod(sizes), exponent)
            yield _Tensor(f"blk.{layer}.{name}.weight", sizes, _F16, noise)
        for name in ("attn_norm", "ffn_norm"):
            yield _Tensor(f"blk.{layer}.{name}.weight", (wide,), _F32, ones)
    yield _Tensor("output_norm.weight", (wide,), _F32, ones)
    yield _Tensor("output.weight", (len(words.tokens), wide), _F16, _rows(successors.output))


def _rows(matrix: Sequence[Sequence[float]]) -> bytes:
    return b"".join(struct.pack(f"<{len(row)}e", *row) for row in matrix)


def _noise(rng: random.Random, count: int, exponent: int) -> bytes:
    """Random half-precision numbers of one magnitude, either sign."""
    raw = rng.randbytes(2 * count)
    high = bytes((byte & 0x83) | ((exponent + 15) << 2) for byte in range(256))
    made = bytearray(2 * count)
    made[0::2], made[1::2] = raw[0::2], raw[1::2].translate(high)
    return bytes(made)


# ---------------------------------------------------------------- the file

_ALIGNED = 32
_U32, _FLOAT, _BOOL, _STRING, _ARRAY, _I32 = 4, 6, 7, 8, 9, 5


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: str | bool | int | float) -> tuple[int, bytes]:
    match value:
        case bool():
            return _BOOL, struct.pack("<?", value)
        case int():
            return _U32, struct.pack("<I", value)
        case float():
            return _FLOAT, struct.pack("<f", value)
        case str():
            return _STRING, _text(value)


def _entry(key: str, value: str | bool | int | float) -> bytes:
    kind, data = _value(value)
    return _text(key) + struct.pack("<I", kind) + data


def _list(key: str, kind: int, items: Sequence[bytes]) -> bytes:
    return _text(key) + struct.pack("<IIQ", _ARRAY, kind, len(items)) + b"".join(items)


def _metadata(shape: Shape, words: _Vocabulary) -> list[bytes]:
    index = words.index
    plain: dict[str, str | bool | int | float] = {
        "general.architecture": "llama",
        "general.name": shape.name,
        "general.file_type": 1,
        "general.license": "cc0-1.0",
        "llama.vocab_size": len(words.tokens),
        "llama.context_length": shape.context,
        "llama.embedding_length": shape.width,
        "llama.block_count": shape.layers,
        "llama.feed_forward_length": 2 * shape.width,
        "llama.rope.dimension_count": shape.width // shape.heads,
        "llama.attention.head_count": shape.heads,
        "llama.attention.head_count_kv": shape.key_heads,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 10000.0,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.bos_token_id": index[_START],
        "tokenizer.ggml.eos_token_id": index[_END],
        "tokenizer.ggml.padding_token_id": index[_START],
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": _TEMPLATE,
    }
    return [
        *(_entry(key, value) for key, value in plain.items()),
        _list("tokenizer.ggml.tokens", _STRING, [_text(token) for token in words.tokens]),
        _list("tokenizer.ggml.token_type", _I32, [struct.pack("<i", kind) for kind in words.kinds()]),
        _list("tokenizer.ggml.merges", _STRING, [_text(merge) for merge in words.merges]),
    ]


def _file(shape: Shape, words: _Vocabulary, tensors: Sequence[_Tensor]) -> bytes:
    metadata = _metadata(shape, words)
    infos: list[bytes] = []
    blobs: list[bytes] = []
    offset = 0
    for tensor in tensors:
        sizes = b"".join(struct.pack("<Q", size) for size in reversed(tensor.shape))
        infos.append(
            _text(tensor.name)
            + struct.pack("<I", len(tensor.shape))
            + sizes
            + struct.pack("<IQ", tensor.kind, offset)
        )
        padded = tensor.data + bytes(-len(tensor.data) % _ALIGNED)
        blobs.append(padded)
        offset += len(padded)
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(infos), len(metadata))
    head += b"".join(metadata) + b"".join(infos)
    return head + bytes(-len(head) % _ALIGNED) + b"".join(blobs)
