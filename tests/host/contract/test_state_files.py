"""What every implementation of `ports.StateFiles` promises."""

from llmgw.ports import StateFiles


async def test_a_file_is_read_as_it_was_written_last(files: StateFiles) -> None:
    assert files.read("a.json") is None
    files.write("a.json", b"1")
    files.write("a.json", b"\x00two")
    assert files.read("a.json") == b"\x00two"


async def test_names_are_found_by_prefix_in_order(files: StateFiles) -> None:
    for name in ("shard-b.json", "term", "shard-a.json"):
        files.write(name, b"x")
    assert files.names("shard-") == ["shard-a.json", "shard-b.json"]
    assert files.names("other") == []


async def test_removing_twice_is_no_error(files: StateFiles) -> None:
    files.write("a", b"1")
    files.remove("a")
    files.remove("a")
    assert files.read("a") is None
    assert files.names("") == []


async def test_a_path_is_absolute_and_ends_with_the_name(files: StateFiles) -> None:
    assert files.path("term").startswith("/")
    assert files.path("term").endswith("/term")
