"""What the TPU compiler writes about a program that is too large, from shortened real files."""

from gshard_annotate.inspector.too_large import needed_and_limit, read_pieces

# Of a sort of 9 GiB: single numbers have a memory of their own, colour 6, which comes first.
ASSIGNED = """BufferAssignment:
allocation 0: size 8589934592, parameter 0, shape |f32[1,2097152,1024]|, maybe-live-out:
 value: <76 x.1 @0> (size=8589934592,offset=0): f32[1,2097152,1024]{2,1,0:T(8,128)}
allocation 49: size 2048, color 6, preallocated-temp:
 value: <78 partition-id @6> (size=1024,offset=1024): u32[]{:T(256)S(6)}
allocation 50: size 19327370240, preallocated-temp:
 value: <83 add_reduce_fusion @0> (size=9437184,offset=9663676416): f32[2359296]{0:T(1024)}
 value: <86 fusion.2 @0> (size=9663676416,offset=0): f32[1,2359296,1024]{2,1,0:T(8,128)}
 value: <90 sort.14{1} @0> (size=9663676416,offset=9663676416): s32[1,2359296,1024]{2,1,0:T(8,128)}
allocation 51: size 4096, thread-local:
 value: <99 later @0> (size=4096,offset=0): f32[8,128]{1,0:T(8,128)}
"""
PROGRAM = """HloModule jit_f, num_partitions=1

ENTRY main {
  x.1 = f32[1,2359296,1024] parameter(0)
  ROOT fusion.2 = f32[1,2359296,1024] negate(x.1), metadata={op_name="jit(f)/neg"}
}
"""


def test_pieces_are_those_of_main_memory_that_share_no_place(tmp_path):
    stem = "module_0000.jit_f.after_optimizations"
    (tmp_path / f"{stem}-buffer-assignment.txt").write_text(ASSIGNED)
    (tmp_path / f"{stem}.txt").write_text(PROGRAM)
    pieces = read_pieces(tmp_path)
    assert [(one.bytes, one.shape, one.op_name) for one in pieces] == [
        (9663676416, "f32[1,2359296,1024]", "jit(f)/neg"),
        (9663676416, "s32[1,2359296,1024]", ""),
    ]


def test_nothing_written_down_is_no_pieces(tmp_path):
    assert read_pieces(tmp_path) == ()


def test_needed_and_limit_by_the_compilers_words():
    said = (
        "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO "
        "temporaries (16.50G) exceeds available HBM (15.48G)."
    )
    assert needed_and_limit(said) == (int(16.5 * 2**30), round(15.48 * 2**30))
    assert needed_and_limit("Used 1.50M of 512.0K hbm.") == (3 * 2**19, 2**19)
    assert needed_and_limit("something else") is None
