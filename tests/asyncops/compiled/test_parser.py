"""HLO text of all origins is read, and what cannot be read is kept as text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncops.compiled.hlo import UNKNOWN_OPCODE, Module
from asyncops.compiled.parser import parse_hlo
from asyncops.compiled.shapes import UNKNOWN
from stateful.errors import HloError

# As XLA prints for GPUs: operand types before names, no percent signs in one computation, other configurations.
GPU = (Path(__file__).parent / "gpu_step.hlo.txt").read_text()
ONE = "HloModule {}\n\nENTRY e {{\n  ROOT %p = f32[] parameter(0)\n}}\n\n"


def only(text: str) -> Module:
    (module,) = parse_hlo(text)
    return module


def test_every_dump_is_read_whole(dump):
    module = only(dump.read_text())
    assert module.is_scheduled
    assert not module.notes
    for computation in module.computations.values():
        for instruction in computation.instructions:
            assert instruction.shape is not UNKNOWN
            assert all(operand in computation.by_name for operand in instruction.operands)
            assert all(callee in module.computations for callee in instruction.callees)


def test_lines_of_python(dump):
    module = only(dump.read_text())
    kernels = [i for i in module.entry.instructions if i.target == "tpu_custom_call"]
    for kernel in kernels:
        innermost, *outer = module.frames.chain(kernel.frame)
        assert innermost.location.file == "tests/asyncops/compiled/programs.py"
        assert innermost.location.function in ("ring_start", "ring_done", "bare_start", "bare_done")
        assert outer[-1].location.function == "<module>"
        assert not any(frame.location.file.startswith("asyncops/") for frame in (innermost, *outer))


def test_gpu_text():
    module = only(GPU)
    assert not module.notes
    assert set(module.computations) == {"fused_add", "wrapped", "main"}
    by_name = module.entry.by_name
    assert by_name["gemm"].operands == ("arg", "arg")
    assert by_name["gemm"].target == "__cublas$gemm"
    assert by_name["get-tuple-element.1"].operands == ("gemm",)
    assert by_name["slice.1"].attributes["some_future_attribute"] == '{a={1,2}, b="}"}'
    assert by_name["arg"].source_line == ("/home/me/step.py", 12)
    assert module.computations["wrapped"].by_name["gathered"].operands == ("w",)


def test_attributes_over_several_lines():
    module = only(
        "HloModule m\n\nENTRY %e () -> f32[] {\n"
        '  ROOT %c = f32[] custom-call(), frontend_attributes={kernel_metadata={\n"mesh_axes":"[\\"x\\"]"\n}}, '
        "metadata={stack_frame_id=7}\n}\n"
    )
    assert module.entry.by_name["c"].frame == 7
    assert not module.notes


def test_an_instruction_that_cannot_be_parsed_is_kept():
    module = only("HloModule m\n\nENTRY e {\n  %p = f32[] parameter(0)\n  ROOT %x = <<strange>>\n}\n")
    unknown = module.entry.by_name["x"]
    assert unknown.opcode == UNKNOWN_OPCODE
    assert unknown.text == "ROOT %x = <<strange>>"
    assert unknown.is_root
    assert module.notes == ("instruction not understood in %e: ROOT %x = <<strange>>",)


def test_both_ways_of_numbering_callers():
    tables = (
        'FileNames\n1 "a.py"\n\nFunctionNames\n1 "f"\n2 "g"\n\nFileLocations\n'
        "1 {file_name_id=1 function_name_id=1 line=3}\n2 {file_name_id=1 function_name_id=2 line=9}\n\nStackFrames\n"
    )
    entry = "\n\nENTRY e {\n  ROOT %p = f32[] parameter(0), metadata={stack_frame_id=2}\n}\n"
    shifted = "1 {file_location_id=1 parent_frame_id=1}\n2 {file_location_id=2 parent_frame_id=2}"
    plain = "1 {file_location_id=1 parent_frame_id=0}\n2 {file_location_id=2 parent_frame_id=1}"
    for stack in (shifted, plain):
        frames = only("HloModule m\n\n" + tables + stack + entry).frames.chain(2)
        assert [str(f.location) for f in frames] == ["a.py:9", "a.py:3"]


def test_several_modules_in_one_text():
    text = ONE.format("a") + ONE.format("b")
    assert [m.name for m in parse_hlo(text)] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "should begin with a line 'HloModule"),
        ("not hlo", "compiled.as_text()"),
        ("HloModule", "has no name"),
        ("HloModule m\n\n%e {\n", "no ENTRY computation"),
    ],
)
def test_what_is_no_module_is_refused(text, says):
    with pytest.raises(HloError, match="HLO") as error:
        parse_hlo(text)
    assert says in str(error.value)


def test_a_cut_text_is_read_as_far_as_it_goes(dump):
    text = dump.read_text()
    entry = text.index("ENTRY")
    module = only(text[: entry + (len(text) - entry) // 2])
    assert any("the text ends inside the computation" in note for note in module.notes)


@given(st.data())
def test_damaged_text_raises_nothing_else(data):
    text = GPU
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(text)))
        piece = data.draw(
            st.sampled_from(["", "{", "}", "(", ")", '"', "\n", "%", "ROOT ", " = ", "HloModule ", "ENTRY "])
        )
        text = text[:at] + piece + text[at + data.draw(st.integers(0, 40)) :]
    try:
        modules = parse_hlo(text)
    except HloError:
        return
    for module in modules:
        for instruction in module.instructions():
            assert instruction.shape is not None
            assert instruction.attributes is not None


def test_deep_nesting_is_no_recursion():
    deep = "(" * 20_000 + "f32[]" + ")" * 20_000
    module = only(f"HloModule m\n\nENTRY e {{\n  ROOT %x = {deep} parameter(0)\n}}\n")
    assert module.entry.by_name["x"].shape is UNKNOWN


def test_the_work_is_linear(calls_made):
    def parse(count: int) -> None:
        lines = [
            f'  %add.{n} = f32[8,128]{{1,0:T(8,128)}} add(%p, %p), metadata={{op_name="jit(f)/add" stack_frame_id=3}}'
            for n in range(count)
        ]
        text = "\n".join(["HloModule m", "", "ENTRY e {", "  %p = f32[8,128] parameter(0)", *lines, "}"])
        assert len(only(text).entry.instructions) == count + 1

    parse(10)
    fewer, more = calls_made(lambda: parse(250)), calls_made(lambda: parse(1000))
    assert 3 * fewer < more < 5 * fewer
