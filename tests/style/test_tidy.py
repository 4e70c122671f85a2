"""Fails when the code is not written by the house rules, and says everything that is wrong at once.

Laws: the rules are in rules.py (one file) and project.py (the whole), what they pass over in exemptions.py;
each rule is shown to bite by test_rules.py and test_project.py.
"""

import pytest

from tests.style.exemptions import EXEMPTIONS, sift
from tests.style.project import (
    forgetful_contracts,
    import_cycles,
    missing_mirrors,
    packages_without_init,
    stray_test_files,
    unsaid_words,
)
from tests.style.rules import judge
from tests.style.source import ROOT, all_sources, published_texts


def test_the_project_is_tidy() -> None:
    sources = all_sources()
    found = [violation for source in sources for violation in judge(source)]
    found += import_cycles(sources)
    found += missing_mirrors(sources)
    found += packages_without_init(sources)
    found += stray_test_files(sources)
    found += unsaid_words(published_texts())
    found += forgetful_contracts(sources, (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    left = sorted(sift(found, EXEMPTIONS))
    if left:
        pytest.fail(f"{len(left)} to change:\n" + "\n".join(str(v) for v in left), pytrace=False)
