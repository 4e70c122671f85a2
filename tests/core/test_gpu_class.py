"""The class of a card, from what it says of itself."""

import pytest

from llmgw.core.gpu_class import gpu_class

MIB = 2**20


@pytest.mark.parametrize(
    ("product", "mib", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", 81559, "H100-80GB"),
        ("NVIDIA H100 NVL", 95830, "H100-94GB"),
        ("NVIDIA H200", 143771, "H200-141GB"),
        ("NVIDIA A100-SXM4-40GB", 40960, "A100-40GB"),
        ("NVIDIA A100-SXM4-80GB", 81920, "A100-80GB"),
        ("NVIDIA A10G", 23028, "A10G-24GB"),
        ("NVIDIA A10", 23028, "A10-24GB"),
        ("NVIDIA L40S", 46068, "L40S-48GB"),
        ("Tesla V100-SXM2-16GB", 16384, "V100-16GB"),
        ("Tesla T4", 15360, "T4-16GB"),
        ("NVIDIA GeForce RTX 4090", 24564, "RTX-4090-24GB"),
        ("NVIDIA RTX 6000 Ada Generation", 49140, "RTX-6000-Ada-48GB"),
        ("NVIDIA B200", 183359, "B200-180GB"),
    ],
)
def test_known_and_unknown_cards_have_a_class(product: str, mib: int, expected: str) -> None:
    assert gpu_class(product, mib * MIB) == expected


def test_what_is_unknown_stays_unknown() -> None:
    assert gpu_class(None, 1) is None
    assert gpu_class("NVIDIA H100", None) == "H100"
