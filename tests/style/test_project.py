"""Shows that each rule for the whole project bites, and that the list of exemptions only shrinks."""

from tests.style.exemptions import Exemption, sift
from tests.style.project import (
    forgetful_contracts,
    import_cycles,
    missing_mirrors,
    packages_without_init,
    stray_test_files,
    unsaid_words,
)
from tests.style.rules import Violation
from tests.style.source import ROOT, Source, all_sources, published_texts


def sources(**texts: str) -> list[Source]:
    """Modules of llmgw: `core__a` stands for src/llmgw/core/a.py."""
    return [Source(f"src/llmgw/{name.replace('__', '/', 1)}.py", text) for name, text in texts.items()]


def test_a_cycle_is_named_whole() -> None:
    found = list(
        import_cycles(
            sources(
                core__a="from llmgw.core.b import B",
                core__b="from llmgw.core import c",
                core__c="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import llmgw.core.a",
                core__d="from llmgw.core.a import A",
            )
        )
    )
    assert len(found) == 1
    assert found[0].what == "imports llmgw.core.a > llmgw.core.b > llmgw.core.c > llmgw.core.a"


def test_an_import_inside_a_function_closes_a_cycle_except_in_entry() -> None:
    lazy = "def f():\n    from llmgw.{0} import {1}"
    assert list(import_cycles(sources(core__a=lazy.format("core", "b"), core__b="from llmgw.core import a")))
    assert not list(
        import_cycles(sources(entry__a=lazy.format("entry", "b"), entry__b="from llmgw.entry import a"))
    )


def test_modules_that_share_what_they_import_are_no_cycle() -> None:
    shared = sources(core__a="from llmgw.core import b, c", core__b="from llmgw.core import c", core__c="")
    assert not list(import_cycles(shared))


def test_a_module_that_decides_needs_a_test_file_of_its_name() -> None:
    files = sources(core__a="", wire__b="", core____init__="", control__c="")
    files.append(Source("tests/core/test_a.py", ""))
    assert [v.what for v in missing_mirrors(files)] == ["tests/wire/test_b.py is missing"]


def test_a_folder_without_init_is_told_so() -> None:
    files = [Source("tests/core/test_a.py", ""), Source("tests/wire/__init__.py", "")]
    assert [v.path for v in packages_without_init(files)] == ["tests/core/__init__.py"]


def test_a_test_in_a_file_that_is_not_collected_is_told_so() -> None:
    files = [
        Source("tests/core/some.py", "def test_a(): ..."),
        Source("tests/core/test_b.py", "def test_b(): ..."),
    ]
    assert [v.path for v in stray_test_files(files)] == ["tests/core/some.py"]


def test_words_about_how_the_project_is_made_are_found_with_their_line() -> None:
    marked = [
        ("docs/a.md", "fine\nas asked in Iss~ue #7"),
        ("docs/b.md", "see sha~red/spec"),
        ("c", "shared/"),
    ]
    texts = [(path, text.replace("~", "")) for path, text in marked]
    assert [(v.path, v.line) for v in unsaid_words(texts)] == [("docs/a.md", 2), ("docs/b.md", 1)]


def test_a_shell_or_adapter_the_contracts_forget_is_named() -> None:
    pyproject = """
    [[tool.importlinter.contracts]]
    type = "forbidden"
    source_modules = ["llmgw.control"]
    forbidden_modules = ["llmgw.net"]
    """
    files = sources(control__a="", loadtest__a="", net__a="", store__a="")
    said = [v.what for v in forgetful_contracts(files, pyproject)]
    assert said == [
        "no contract keeps llmgw.loadtest from the adapters",
        "no contract hides llmgw.store from the shells",
    ]


def test_an_exemption_passes_what_it_covers_and_nothing_else() -> None:
    wrong = [
        Violation("a.py", 1, "banned", "time.time: …", "…"),
        Violation("b.py", 1, "banned", "time.time: …", "…"),
    ]
    assert sift(wrong, [Exemption("banned", "a.py", "time.time", "why")]) == wrong[1:]


def test_an_exemption_that_is_not_needed_fails() -> None:
    left = sift([], [Exemption("banned", "a.py", "time.time", "why")])
    assert [v.what for v in left] == ["the exemption from 'banned' (why) is no longer needed"]


def test_the_rules_read_the_real_project() -> None:
    paths = {source.path for source in all_sources()}
    assert {"src/llmgw/ports/http.py", "tests/style/rules.py"} <= paths
    published = {path for path, _ in published_texts()}
    assert {"README.md", "Makefile", ".ci/run", "requirements/run.txt"} <= published
    assert (ROOT / "pyproject.toml").is_file()
