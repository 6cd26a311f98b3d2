"""The YAML is data: labels, references and arithmetic, nothing that runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.engine.checkpoint.document import MAX_BYTES, Document, Tagged, load_document
from antiphon.engine.checkpoint.section import Section
from antiphon.engine.errors import CheckpointError


def parse(tmp_path: Path, text: str) -> Document:
    path = tmp_path / "cosyvoice3.yaml"
    path.write_text(text)
    return load_document(path)


def test_tags_become_labels(tmp_path: Path) -> None:
    document = parse(tmp_path, "a: !new:os.system\n  command: rm\nb: !apply:random.seed [1]\n")
    assert document.root["a"] == Tagged("new", "os.system", {"command": "rm"})
    assert document.root["a"].class_name == "system"
    assert document.root["b"].arguments == [1]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("<x>", 25),
        ("<x> * <y>", 50),
        ("(<x> + 3) // 2 - -1", 15),
        ("<x> / <y>", 12.5),
        ("<s>/weights", "folder/weights"),
        ("<n.inner>", 7),
        ("<t.depth>", 4),
    ],
)
def test_references_are_resolved(tmp_path: Path, expression: str, value: object) -> None:
    text = (
        f"x: 25\ny: 2\ns: folder\nn: {{inner: 7}}\nt: !new:a.B\n  depth: 4\nr: !ref {expression}\n"
    )
    document = parse(tmp_path, text)
    assert document.resolve(document.root["r"]) == value


@pytest.mark.parametrize(
    "expression", ["<missing>", "<r>", "<x> ** 9", "<x> / 0", "<x> * (", "abs(<x>)", "<x>.real"]
)
def test_references_that_cannot_be_are_named(tmp_path: Path, expression: str) -> None:
    document = parse(tmp_path, f"x: 25\nr: !ref {expression}\n")
    with pytest.raises(CheckpointError, match="ref"):
        document.resolve(document.root["r"])


@pytest.mark.parametrize(
    "text",
    [
        "a: !python/object/apply:os.system ['true']",
        "a: !strange 1",
        "a: &x [1]\nb: *x",
        "- a\n- b",
        "a: [",
        "a: \x00",
        "[" * 20_000,
        "1: 2",
    ],
)
def test_hostile_documents_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(CheckpointError) as refused:
        parse(tmp_path, text)
    assert refused.value.field == "cosyvoice3.yaml"


def test_files_that_are_too_large_or_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "cosyvoice3.yaml"
    path.write_bytes(b"a" * (MAX_BYTES + 1))
    with pytest.raises(CheckpointError):
        load_document(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CheckpointError):
        load_document(path)


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=300) | st.text(max_size=200).map(str.encode))
def test_any_bytes_parse_or_are_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "cosyvoice3.yaml"
    path.write_bytes(data)
    try:
        load_document(path)
    except CheckpointError:
        return


def section(tmp_path: Path, text: str) -> Section:
    document = parse(tmp_path, f"part: !new:x.Part\n{text}")
    return Section.of(document, "part", document.root["part"])


def test_a_section_reads_with_types_and_bounds(tmp_path: Path) -> None:
    part = section(tmp_path, "  a: 3\n  b: 1e-06\n  c: [1, 2]\n  d: true\n  e: null\n")
    assert part.class_name == "Part"
    assert part.integer("a") == 3
    assert part.number("b") == 1e-6
    assert part.integers("c") == (1, 2)
    assert part.boolean("d") is True
    assert part.optional_number("e") is None
    part.finish()


@pytest.mark.parametrize(
    ("line", "read"),
    [("a: 0", "integer"), ("a: x", "integer"), ("a: true", "integer"), ("a: .nan", "number"),
     ("a: []", "integers"), ("a: [x]", "integers"), ("a: 1", "boolean"), ("a: 1", "text"),
     ("a: 3", "integer_lists"), ("b: 1", "integer")],
)  # fmt: skip
def test_wrong_values_are_named(tmp_path: Path, line: str, read: str) -> None:
    part = section(tmp_path, f"  {line}\n")
    with pytest.raises(CheckpointError) as refused:
        getattr(part, read)("a")
    assert refused.value.field == "part.a"


def test_a_key_that_nobody_read_is_an_error(tmp_path: Path) -> None:
    part = section(tmp_path, "  a: 3\n  surprise: 1\n  dropout: 0.1\n")
    part.integer("a")
    with pytest.raises(CheckpointError) as refused:
        part.finish(ignore=("dropout",))
    assert refused.value.field == "part.surprise"
