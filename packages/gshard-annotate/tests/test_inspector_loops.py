"""How often the parts of a program run."""

import jax
import jax.numpy as jnp
import pytest

from gshard_annotate.inspector.hlo import parse
from gshard_annotate.inspector.loops import runs, trip_count

# As a TPU's compiler writes loops: the limit goes around in the state, the step is in a fusion.
LOOP = """\
HloModule jit_f

%next (a: s32[], b: f32[4]) -> (s32[], f32[4]) {{
  %a = s32[] parameter(0)
  %b = f32[4] parameter(1)
  %step = s32[] constant({step})
  %sum = s32[] {add}(%a, %step)
  ROOT %both = (s32[], f32[4]) tuple(%sum, %b)
}}

%body (s: (s32[], f32[4], s32[])) -> (s32[], f32[4], s32[]) {{
  %s = (s32[], f32[4], s32[]) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %x = f32[4] get-tuple-element(%s), index=1
  %n = s32[] get-tuple-element(%s), index=2
  %f = (s32[], f32[4]) fusion(%i, %x), kind=kLoop, calls=%next
  %j = s32[] get-tuple-element(%f), index=0
  %y = f32[4] get-tuple-element(%f), index=1
  ROOT %out = (s32[], f32[4], s32[]) tuple(%j, %y, %n)
}}

%compared (a: s32[], b: s32[]) -> pred[] {{
  %a = s32[] parameter(0)
  %b = s32[] parameter(1)
  ROOT %lt = pred[] compare(%a, %b), direction={direction}
}}

%cond (s: (s32[], f32[4], s32[])) -> pred[] {{
  %s = (s32[], f32[4], s32[]) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %n = s32[] get-tuple-element(%s), index=2
  ROOT %c = pred[] fusion({order}), kind=kLoop, calls=%compared
}}

ENTRY %main (x: f32[4]) -> f32[4] {{
  %x = f32[4] parameter(0)
  %zero = s32[] constant({start})
  %limit = s32[] constant({limit})
  %start = s32[] copy(%zero)
  %state = (s32[], f32[4], s32[]) tuple(%start, %x, %limit)
  %w = (s32[], f32[4], s32[]) while(%state), condition=%cond, body=%body
  ROOT %r = f32[4] get-tuple-element(%w), index=1
}}
"""


def loop(start=0, limit=5, step=1, direction="LT", order="%i, %n", add="add"):
    """A parsed loop, and its trips."""
    text = LOOP.format(
        start=start, limit=limit, step=step, direction=direction, order=order, add=add
    )
    program = parse(text)
    return trip_count(program, program.entry.instructions["w"])


@pytest.mark.parametrize(
    ("given", "trips"),
    [
        ({}, 5),
        ({"start": 2}, 3),
        ({"limit": 7, "step": 3}, 3),  # 0, 3, 6
        ({"direction": "LE"}, 6),
        ({"direction": "NE"}, 5),
        ({"direction": "GT", "order": "%n, %i"}, 5),  # 5 > i
        ({"start": 5, "limit": 0, "direction": "GT", "add": "subtract"}, 5),
        ({"start": 4, "limit": 0, "direction": "GE", "step": -1}, 5),
        ({"start": 9}, 0),
        ({"step": 0}, None),
    ],
)
def test_trips_follow_from_start_limit_and_step(given, trips):
    assert loop(**given) == trips


def program_of(function, *shapes):
    arguments = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return parse(jax.jit(function).lower(*arguments).compile().as_text())


def test_nested_scans_multiply():
    def inner(x, _):
        return jnp.tanh(x @ x), ()

    def outer(x, _):
        return jax.lax.scan(inner, x * 2, length=3)[0], ()

    program = program_of(lambda x: jax.lax.scan(outer, x, length=5)[0], (4, 4))
    found = runs(program)
    dots = [one for one in program if one.opcode in ("dot", "fusion") and "dot" in one.op_name]
    assert [found.counts[one.computation] for one in dots] == [15]
    assert sorted(found.trips.values()) == [3, 5]
    assert found.unknown == ()


def test_a_loop_over_data_counts_as_often_as_assumed_and_is_named():
    program = program_of(
        lambda x: jax.lax.while_loop(lambda c: c.sum() < 9, lambda c: c * 2, x), (4,)
    )
    found = runs(program)
    assert [one.opcode for one in found.unknown] == ["while"]
    assert set(found.counts.values()) <= {0, 1}
    assert 7 in runs(program, assumed=7).counts.values()


def test_trips_seen_elsewhere_are_used_for_the_same_loop():
    program = program_of(
        lambda x: jax.lax.while_loop(lambda c: c.sum() < 9, lambda c: c * 2, x), (4,)
    )
    name = runs(program).unknown[0].op_name
    found = runs(program, {name: 7})
    assert found.trips == {name: 7}
    assert 7 in found.counts.values()


def test_trips_are_no_loops_where_another_of_its_name_depends_on_data():
    def both(x):
        x = jax.lax.fori_loop(0, 5, lambda _, c: jnp.tanh(c * 3), x)
        return jax.lax.while_loop(lambda c: c.sum() < 9, lambda c: c * 2, x)

    program = program_of(both, (4,))
    loops = [one for one in program if one.opcode == "while"]
    assert len({one.op_name for one in loops}) == 1
    found = runs(program)
    assert len(found.unknown) == 1
    assert found.trips == {}


def test_branches_count_as_often_as_their_conditional():
    def step(x, flag):
        return jax.lax.cond(flag, lambda x: x @ x, lambda x: x * 3, x), ()

    def loop(x):
        return jax.lax.scan(step, x, jnp.arange(6) % 2 == 0)[0]

    program = program_of(loop, (3, 3))
    conditional = next(one for one in program if one.opcode == "conditional")
    counts = runs(program).counts
    assert [counts[name] for _, name in conditional.called()] == [6, 6]
