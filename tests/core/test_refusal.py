"""The closed list of client-visible reasons."""

from llmgw.core.refusal import Code


def test_codes_are_lower_case_words_that_never_repeat() -> None:
    values = [code.value for code in Code]
    assert len(set(values)) == len(values)
    assert all(value.replace("_", "").isalpha() and value.islower() for value in values)
