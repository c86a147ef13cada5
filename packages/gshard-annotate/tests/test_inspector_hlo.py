"""HLO text as computations and instructions."""

import pytest

from gshard_annotate.inspector.hlo import Source, arrays, dtype_bits, parse

TEXT = """\
HloModule jit_f, entry_computation_layout={(f32[2,4]{1,0})->f32[]}, num_partitions=8

FileNames
1 "/home/me/model.py"
2 "/usr/lib/python3.11/site-packages/flax/nnx/linear.py"

FunctionNames
1 "step"
2 "Linear.__call__"

FileLocations
1 {file_name_id=1 function_name_id=1 line=17 end_line=17 column=4 end_column=9}
2 {file_name_id=2 function_name_id=2 line=400 end_line=400 column=4 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}
3 {file_location_id=2 parent_frame_id=1}

%body.1 (p: (f32[2,4], u32[])) -> (f32[2,4], u32[]) {
  %p = (f32[2,4]{1,0:T(8,128)S(1)}, /*index=1*/u32[]) parameter(0), metadata={op_name="x[\\'a\\']"}
  ROOT %t = (f32[2,4]{1,0}, u32[]) tuple(%p, %p), sharding={{replicated}, {devices=[2,1]<=[2]}}
}

ENTRY %main.7 (x: f32[2,4]) -> f32[] {
  %x = f32[2,4]{1,0} parameter(0)
  %c = f32[2,2]{1,0} constant({ { 1, 2 }, { 3, (4) } }), metadata={op_name="c" stack_frame_id=2}
  %w = (f32[2,4], u32[]) while(%x), condition=%cond.1, body=%body.1, backend_config={"a":{"n":"5"}}
  %a2a = f32[2,4]{1,0} all-to-all(%x), replica_groups={{0,1},{2,3}}, dimensions={0}, METADATA
  ROOT %r = f32[] reduce(%a2a, %c), to_apply=%add.1, metadata={op_name="r" stack_frame_id=3}
}
""".replace("METADATA", 'metadata={op_name="jit(f)/dot, general" stack_frame_id=1}')


@pytest.fixture(scope="module")
def program():
    return parse(TEXT)


def test_computations_with_entry_root_and_parameters(program):
    assert list(program.computations) == ["body.1", "main.7"]
    assert program.entry.name == "main.7"
    assert program.entry.root.name == "r"
    assert program.entry.parameters[0].name == "x"
    assert program.computations["body.1"].root.operands == ["p", "p"]
    assert program.num_partitions == 8


def test_an_instruction_s_parts(program):
    exchange = program.entry.instructions["a2a"]
    assert (exchange.opcode, exchange.operands, exchange.bytes) == ("all-to-all", ["x"], 32)
    assert exchange.attribute("replica_groups") == "{{0,1},{2,3}}"
    assert exchange.attribute("dimensions") == "{0}"
    assert exchange.attribute("channel_id") == ""
    assert exchange.op_name == "jit(f)/dot, general"


def test_literals_and_names_with_brackets_and_quotes(program):
    assert program.entry.instructions["c"].literal == "{ { 1, 2 }, { 3, (4) } }"
    assert program.computations["body.1"].instructions["p"].op_name == "x['a']"


def test_what_an_instruction_runs(program):
    loop = program.entry.instructions["w"]
    assert dict(loop.called()) == {"condition": "cond.1", "body": "body.1"}
    # The function of a reduction runs per element; it is no part of the program's course.
    assert program.entry.root.called() == []


def test_types_of_tuples_with_layouts_and_memory_spaces(program):
    first, second = program.computations["body.1"].instructions["p"].arrays
    assert (str(first), first.elements, first.bytes, first.space) == ("f32[2,4]", 8, 32, 1)
    assert (str(second), second.bytes, second.space) == ("u32[]", 4, 0)


@pytest.mark.parametrize(
    ("shape", "size"),
    [("pred[3]", 3), ("s4[3]", 2), ("bf16[2,<=3]", 12), ("f8e4m3fn[5]", 5), ("c64[2]", 16)],
)
def test_bytes_of_types(shape, size):
    assert sum(array.bytes for array in arrays(shape)) == size


def test_tokens_hold_nothing():
    assert dtype_bits("token") == 0


def test_the_source_is_the_innermost_line_of_the_user(program):
    instructions = program.entry.instructions
    assert program.source(instructions["a2a"]) == Source("/home/me/model.py", 17, "step")
    # Called from line 17, inside an installed library.
    assert program.source(instructions["c"]) == Source("/home/me/model.py", 17, "step")


def test_a_library_s_line_is_better_than_none(program):
    source = program.source(program.entry.root)
    assert source is not None
    assert (source.line, source.function) == (400, "Linear.__call__")
    assert program.source(program.entry.instructions["x"]) is None


def test_no_program_at_all():
    empty = parse("")
    assert list(empty) == []
    assert empty.num_partitions == 1
