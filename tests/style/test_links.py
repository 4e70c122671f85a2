"""Links in the project's pages lead somewhere: a newcomer follows them before anything else."""

import re
from collections.abc import Iterator

from tests.style.source import ROOT, published_texts

_LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


def broken_links(path: str, text: str) -> Iterator[str]:
    """Relative links of one page that lead to no file."""
    for number, line in enumerate(text.splitlines(), start=1):
        for target in _LINK.findall(line):
            if "://" not in target and not (ROOT / path).parent.joinpath(target).exists():
                yield f"{path}:{number}: {target}"


def test_a_link_to_nothing_is_found() -> None:
    text = "[a](README.md)\n[b](docs/nothing.md#part) [c](http://localhost)"
    assert list(broken_links("CHANGELOG.md", text)) == ["CHANGELOG.md:2: docs/nothing.md"]


def test_every_link_between_pages_leads_to_a_file() -> None:
    pages = [(path, text) for path, text in published_texts() if path.endswith(".md")]
    assert [broken for path, text in pages for broken in broken_links(path, text)] == []
