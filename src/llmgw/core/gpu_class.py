"""Decides the class of a card from its product name and memory (I9); profiles ask for classes.

Laws: one table; a card it does not know gets a slug of its own name and size, so that it can still be
asked for; cards of one product with different memory are different classes.
"""

import re

from llmgw.core.units import GB

# Product words that name a class, more particular ones first.
_KNOWN = (
    *("GB300", "GB200", "B300", "B200", "GH200", "H200", "H100", "H20", "H800", "A100", "A800", "A40"),
    *("A30", "A10G", "A10", "A16", "A2", "L40S", "L40", "L20", "L4", "V100", "P100", "P40", "T4"),
    *("MI355X", "MI325X", "MI300X", "MI250X", "MI210"),
)
_NOISE = re.compile(r"\b(NVIDIA|AMD|Tesla|GeForce|Instinct|Graphics|Generation|PCIe|SXM\d?|HBM\d?e?)\b", re.I)
# What vendors sell, in GB; a card reports a little less, or a little more in decimal units.
_SIZES = (4, 6, 8, 10, 11, 12, 16, 20, 24, 32, 40, 48, 64, 80, 94, 96, 128, 141, 144, 180, 192, 256, 288)
_NEAR = 0.09


def gpu_class(product: str | None, memory_bytes: int | None) -> str | None:
    """Like `H100-80GB`; `None` when the product is unknown."""
    if product is None:
        return None
    words = set(re.findall(r"[A-Za-z0-9]+", product.upper()))
    name = next((known for known in _KNOWN if known in words), None) or _slug(product)
    size = _size(memory_bytes)
    return name if size is None else f"{name}-{size}GB"


def _slug(product: str) -> str:
    plain = re.sub(r"\b\d+\s*GB\b", " ", _NOISE.sub(" ", product), flags=re.I)
    return re.sub(r"[^A-Za-z0-9]+", "-", plain).strip("-") or "GPU"


def _size(memory_bytes: int | None) -> int | None:
    """The size it is sold as: the nearest one, of those close enough, else what it reports."""
    if not memory_bytes:
        return None
    binary = memory_bytes / 2**30
    near = [size for size in _SIZES if abs(size - binary) / size <= _NEAR]
    if near:
        return min(near, key=lambda size: abs(size - binary))
    return round(memory_bytes / GB)
