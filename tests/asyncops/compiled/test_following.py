"""Copies in flight through every construct of HLO, on small modules written by hand.

Their kernels have no bodies, so that what they start and wait for is inferred from their types.
"""

from __future__ import annotations

import pytest

from asyncops.compiled.checking import check_compiled
from asyncops.compiled.facts import Trace
from asyncops.compiled.following import MAX_ITERATIONS, follow
from asyncops.compiled.loops import runs_at_most_once, trip_count
from asyncops.compiled.parser import parse_hlo

A = "f32[64,128]{1,0:T(8,128)}"
V = "f32[64,128]{1,0:T(8,128)S(1)}"
S = "s32[]{:S(2)}"
N = "s32[]"
FUTURE = f"({A}, {A}, {S})"
KERNEL = 'custom_call_target="tpu_custom_call", custom_call_has_side_effect=true'


def start(name: str, operand: str) -> str:
    """Takes over its operand: results are the source, the destination and the semaphore."""
    return f"""
  %{name} = {FUTURE} custom-call(%{operand}), {KERNEL}, output_to_operand_aliasing={{{{0}}: (0, {{}})}}
  %{name}.x = {A} get-tuple-element(%{name}), index=0
  %{name}.y = {A} get-tuple-element(%{name}), index=1
  %{name}.s = {S} get-tuple-element(%{name}), index=2"""


def done(name: str, x: str, y: str, s: str) -> str:
    return f"""
  %{name} = {A} custom-call(%{x}, %{y}, %{s}), {KERNEL}, output_to_operand_aliasing={{{{}}: (1, {{}})}}"""


def finish(name: str, future: str) -> str:
    return done(name, f"{future}.x", f"{future}.y", f"{future}.s")


def parts(name: str, of: str) -> str:
    """The elements of a future that is a tuple (or a carry whose counter comes last)."""
    kinds = zip("xys", (A, A, S), strict=True)
    return "".join(
        f"\n  %{name}.{k} = {t} get-tuple-element(%{of}), index={n}" for n, (k, t) in enumerate(kinds)
    )


def module(entry: str, *others: str, parameters: str = f"%a = {A} parameter(0)", attributes: str = "") -> str:
    return "\n".join(
        [
            f"HloModule m, is_scheduled=true{attributes}",
            "",
            *others,
            "ENTRY %e () -> () {",
            f"  {parameters}",
            entry,
            "}",
        ]
    )


def computation(name: str, body: str) -> str:
    return f"%{name} (p: f32[]) -> f32[] {{{body}\n}}\n"


def trace(text: str) -> Trace:
    (one,) = parse_hlo(text)
    return follow(one)


def codes(text: str) -> list[str]:
    report = check_compiled(text)
    assert not report.unknowns, report.unknowns
    return [d.code for d in report.diagnostics]


MULTIPLY = f"\n  %m = {A} multiply(%a, %a)"
LIMIT = computation(
    "condition",
    f"\n  %p = ({A}, {A}, {S}, {N}) parameter(0)\n  %i = {N} get-tuple-element(%p), index=3"
    f"\n  %n = {N} constant(6)\n  ROOT %c = pred[] compare(%i, %n), direction=LT",
)
COUNT = f"""
  %p = ({A}, {A}, {S}, {N}) parameter(0)
  %i = {N} get-tuple-element(%p), index=3
  %one = {N} constant(1)
  %next = {N} add(%i, %one)"""


def loop(body: str, x: str = "f2.x", y: str = "f2.y", s: str = "f2.s") -> str:
    """A loop that carries a future: ``body`` is given ``f`` and makes what the carry names."""
    root = f"\n  ROOT %r = ({A}, {A}, {S}, {N}) tuple(%{x}, %{y}, %{s}, %next)"
    entry = (
        MULTIPLY
        + start("f0", "m")
        + f"""
  %zero = {N} constant(0)
  %t = ({A}, {A}, {S}, {N}) tuple(%f0.x, %f0.y, %f0.s, %zero)
  %w = ({A}, {A}, {S}, {N}) while(%t), condition=%condition, body=%body"""
    )
    entry += parts("f3", "w") + finish("last", "f3") + f"\n  ROOT %q = ({A}) tuple(%last)"
    return module(entry, LIMIT, computation("body", COUNT + parts("f", "p") + body + root))


def test_a_pair():
    assert codes(module(MULTIPLY + start("f", "m") + finish("d", "f"))) == []


def test_through_tuples_bitcasts_and_barriers():
    entry = (
        MULTIPLY
        + start("f", "m")
        + f"""
  %t = ({FUTURE}) tuple(%f)
  %b = ({FUTURE}) opt-barrier(%t)
  %g = {FUTURE} get-tuple-element(%b), index=0"""
        + parts("g", "g")
        + f"\n  %v = {A} bitcast(%g.y)"
    )
    assert codes(module(entry + done("d", "g.x", "v", "g.s"))) == []
    assert codes(module(entry + f"\n  %z = {A} negate(%v)" + done("d", "g.x", "v", "g.s"))) == ["AO504"]


def test_through_a_call():
    callee = computation("callee", f"\n  %p = {FUTURE} parameter(0)" + parts("f", "p") + finish("d", "f"))
    entry = MULTIPLY + start("f", "m") + f"\n  ROOT %c = {A} call(%f), to_apply=%callee"
    assert codes(module(entry, callee)) == []
    reading = callee.replace("\n  %d =", f"\n  %z = {A} negate(%f.y)\n  %d =")
    assert codes(module(entry, reading)) == ["AO504"]


def test_a_carried_future_is_followed_to_the_steady_state():
    text = loop(finish("d", "f") + start("f2", "d"))
    found = trace(text)
    assert [f.start.name for f in found.flights] == ["f0", "f2", "f2"]
    assert [f.endings[0].instruction.name for f in found.flights] == ["d", "d", "last"]
    assert codes(text) == []


def test_a_read_in_the_loop_of_what_the_iteration_before_started():
    text = loop(f"\n  %z = {A} negate(%f.y)" + finish("d", "f") + start("f2", "d"))
    report = check_compiled(text)
    assert [d.code for d in report.diagnostics] == ["AO504"]
    assert "6 times" in report.diagnostics[0].message


def test_waiting_in_the_loop_for_what_was_started_once():
    text = loop(finish("d", "f"), x="f.x", y="d", s="f.s")
    assert "AO502" in codes(text)


def test_a_start_in_every_iteration_that_is_forgotten():
    text = loop(finish("d", "f") + start("f2", "d") + start("g", "f2.x"))
    assert codes(text) == ["AO501"]


def test_buffers_that_rotate_through_the_carry():
    body = (
        f"""
  %p = ({A}, {A}, {A}, {N}) parameter(0)
  %x = {A} get-tuple-element(%p), index=0
  %y = {A} get-tuple-element(%p), index=1
  %z = {A} get-tuple-element(%p), index=2
  %i = {N} get-tuple-element(%p), index=3"""
        + start("f", "x")
        + finish("d", "f")
        + f"""
  ROOT %r = ({A}, {A}, {A}, {N}) tuple(%y, %z, %d, %i)"""
    )
    condition = computation(
        "condition", f"\n  %p = ({A}, {A}, {A}, {N}) parameter(0)\n  ROOT %c = pred[] custom-call(%p)"
    )
    entry = (
        MULTIPLY
        + f"""
  %n = {A} negate(%a)
  %o = {A} negate(%n)
  %zero = {N} constant(0)
  %t = ({A}, {A}, {A}, {N}) tuple(%m, %n, %o, %zero)
  ROOT %w = ({A}, {A}, {A}, {N}) while(%t), condition=%condition, body=%body"""
    )
    found = trace(module(entry, condition, computation("body", body)))
    assert not found.unknowns
    assert len(found.flights) < MAX_ITERATIONS


def conditional(false: str, true: str) -> str:
    branches = [computation("no", f"\n  %p = {FUTURE} parameter(0)" + parts("f", "p") + false)]
    branches.append(computation("yes", f"\n  %p = {FUTURE} parameter(0)" + parts("f", "p") + true))
    entry = (
        MULTIPLY
        + start("f", "m")
        + f"""
  %i = {N} parameter(1)
  ROOT %c = {A} conditional(%i, %f, %f), branch_computations={{%no, %yes}}"""
    )
    return module(entry, *branches)


def test_a_wait_in_each_branch():
    assert codes(conditional(finish("d", "f"), finish("e", "f"))) == []


def test_a_wait_in_one_branch():
    report = check_compiled(conditional(f"\n  %n = {A} negate(%f.x)", finish("d", "f")))
    assert [d.code for d in report.diagnostics] == ["AO501"]
    assert "when the false branch of %c is taken" in report.diagnostics[0].message


def test_a_wait_in_one_branch_and_again_after():
    text = conditional(f"\n  %n = {A} negate(%f.x)", finish("d", "f")).replace("ROOT %c", "%c")
    text = text.removesuffix("}") + finish("e", "f").lstrip("\n") + "\n}"
    report = check_compiled(text)
    assert [d.code for d in report.diagnostics] == ["AO502"]
    assert "when the true branch was taken" in report.diagnostics[0].message


def test_a_future_that_a_branch_starts_anew():
    restarted = finish("d", "f") + start("g", "d") + f"\n  ROOT %r = {FUTURE} tuple(%g.x, %g.y, %g.s)"
    passed = f"\n  ROOT %r = {FUTURE} tuple(%f.x, %f.y, %f.s)"
    text = conditional(restarted, passed).replace(f"ROOT %c = {A}", f"%c = {FUTURE}")
    assert codes(text.removesuffix("}") + (parts("h", "c") + finish("e", "h")).lstrip("\n") + "\n}") == []


@pytest.mark.parametrize(
    "update",
    [
        f"\n  %u = {A} dynamic-update-slice(%f.x, %a, %i, %i)",
        f"\n  %u = {A} scatter(%f.x, %i, %a), to_apply=%plus",
        f"\n  %u = {A} fusion(%a, %f.x, %i), kind=kLoop, calls=%updating",
    ],
)
def test_updates_in_place(update):
    updating = computation(
        "updating",
        f"\n  %q = {A} parameter(0)\n  %x = {A} parameter(1)\n  %j = {N} parameter(2)\n  %b = {A} bitcast(%x)"
        f"\n  ROOT %v = {A} dynamic-update-slice(%b, %q, %j, %j)",
    )
    entry = MULTIPLY + start("f", "m") + f"\n  %i = {N} parameter(1)" + update
    report = check_compiled(module(entry + done("d", "u", "f.y", "f.s"), updating))
    assert [d.code for d in report.diagnostics] == ["AO504"]
    assert "rewrites its source in place" in report.diagnostics[0].message


def test_reading_a_source_in_flight_is_fine():
    assert codes(module(MULTIPLY + start("f", "m") + f"\n  %z = {A} negate(%f.x)" + finish("d", "f"))) == []


def test_an_argument_lives_unless_it_is_donated():
    bare = f"""
  %f = ({A}, {S}) custom-call(%a), {KERNEL}
  %f.y = {A} get-tuple-element(%f), index=0
  %f.s = {S} get-tuple-element(%f), index=1
  ROOT %d = {A} custom-call(%f.y, %f.s), {KERNEL}, output_to_operand_aliasing={{{{}}: (0, {{}})}}"""
    assert codes(module(bare)) == []
    donated = ", input_output_alias={ {}: (0, {}, may-alias) }"
    assert codes(module(bare, attributes=donated)) == ["AO503"]


@pytest.mark.parametrize(
    ("pair", "source", "destination"),
    [
        (f"%s = ({V}, {A}, u32[]) copy-start(%m)\n  %d = {V} copy-done(%s)", "m", "s"),
        (
            f"%s = ({A}, {V}, u32[], u32[]) collective-permute-start(%m)\n  %d = {V} collective-permute-done(%s)",
            "m",
            "s",
        ),
        (f"%s = ({A}, {V}) all-gather-start(%m), dimensions={{0}}\n  %d = {V} all-gather-done(%s)", "m", "s"),
        (f"%s = {A} all-reduce-start(%m), to_apply=%plus\n  %d = {A} all-reduce-done(%s)", "m", "s"),
        (
            f"%s = (({A}), {V}, u32[]) async-start(%m), calls=%wrapped\n  %u = (({A}), {V}, u32[]) async-update(%s)"
            f"\n  %d = {V} async-done(%u)",
            "m",
            "s",
        ),
        (f"%s = (({A}), {V}, s32[]) slice-start(%m), slice={{[0:8]}}\n  %d = {V} slice-done(%s)", "m", "s"),
        (f"%s = ({A}, u32[], token[]) send(%m, %k), channel_id=1\n  %d = token[] send-done(%s)", "m", None),
        (
            f"%s = ({A}, u32[], token[]) recv(%k), channel_id=1\n  %d = ({A}, token[]) recv-done(%s)",
            None,
            "s",
        ),
    ],
)
def test_pairs_of_xla_itself(pair, source, destination):
    entry = f"{MULTIPLY}\n  %k = token[] after-all()\n  {pair}\n  ROOT %r = {A} negate(%m)"
    found = trace(module(entry))
    (flight,) = found.flights
    assert flight.native
    assert [b and b.origin.name for b in (flight.source, flight.destination)] == [source, destination]
    assert [e.instruction.name for e in flight.endings] == ["d"]
    assert codes(module(entry)) == []


def test_a_pair_of_xla_that_is_done_twice_or_never():
    begin = f"{MULTIPLY}\n  %s = ({V}, {A}, u32[]) copy-start(%m)"
    end = f"\n  %d = {V} copy-done(%s)"
    assert codes(module(begin + f"\n  ROOT %n = {A} negate(%m)")) == ["AO501"]
    assert codes(module(begin + end + end.replace("%d", "%e"))) == ["AO502"]


def test_trip_counts():
    (one,) = parse_hlo(loop(finish("d", "f") + start("f2", "d")))
    assert trip_count(one.entry.by_name["w"], one.entry, one) == 6
    text = loop("").replace("body=%body", 'body=%body, backend_config={"known_trip_count":{"n":"11"}}')
    (one,) = parse_hlo(text)
    assert trip_count(one.entry.by_name["w"], one.entry, one) == 11
    (one,) = parse_hlo(loop("").replace("direction=LT", "direction=LE"))
    assert trip_count(one.entry.by_name["w"], one.entry, one) == 7
    down = loop("").replace("constant(0)", "constant(9)").replace("constant(1)", "constant(-2)")
    (one,) = parse_hlo(down.replace("direction=LT", "direction=GT"))
    assert trip_count(one.entry.by_name["w"], one.entry, one) == 2
    (one,) = parse_hlo(loop("").replace("direction=LT", "direction=GT"))
    assert trip_count(one.entry.by_name["w"], one.entry, one) is None
    (one,) = parse_hlo(loop("").replace("direction=LT", "direction=NE"))
    assert trip_count(one.entry.by_name["w"], one.entry, one) is None


def second_iteration(test: str, by: int = 1) -> bool:
    """Whether a loop may run twice while ``test`` (of the counter %i) and something unknown hold."""
    root = "ROOT %c = pred[] compare(%i, %n), direction=LT"
    both = f"%k = {N} constant(3)\n  %u = pred[] custom-call(%p)\n  %c = pred[] {test}\n  ROOT %r = pred[] and(%u, %c)"
    text = loop("").replace(root, both).replace("constant(1)", f"constant({by})")
    (one,) = parse_hlo(text)
    return not runs_at_most_once(one.entry.by_name["w"], one)


def test_a_loop_that_goes_on_only_at_one_count_runs_at_most_once():
    assert not second_iteration("compare(%i, %k), direction=EQ")
    assert not second_iteration("compare(%k, %i), direction=EQ", by=-1)
    assert second_iteration("compare(%i, %k), direction=EQ", by=0)
    assert second_iteration("compare(%i, %k), direction=NE")
    assert second_iteration("compare(%i, %i), direction=EQ")
    assert second_iteration("custom-call(%i)")


def test_a_module_that_is_not_scheduled_is_unknown():
    text = module(MULTIPLY + start("f", "m") + finish("d", "f")).replace(", is_scheduled=true", "")
    report = check_compiled(text)
    assert report.verdict == "unknown"
    assert "is not scheduled" in report.unknowns[0]


def test_an_instruction_that_is_not_understood_makes_the_verdict_unknown():
    text = module(MULTIPLY + start("f", "m") + "\n  %strange = <<f>>" + finish("d", "f"))
    assert check_compiled(text).verdict == "unknown"


def test_a_computation_that_calls_itself_is_given_up():
    text = module(
        MULTIPLY + start("f", "m") + f"\n  %c = {A} call(%f.x), to_apply=%again" + finish("d", "f"),
        computation("again", f"\n  %p = {A} parameter(0)\n  ROOT %c = {A} call(%p), to_apply=%again"),
    )
    assert "nest deeper" in check_compiled(text).unknowns[0]


def test_a_text_that_lies_about_its_tuples_is_given_up():
    lines = [f"\n  %t0 = ({A}) tuple(%m, %m)"] + [
        f"\n  %t{n} = ({A}) tuple(%t{n - 1}, %t{n - 1})" for n in range(1, 40)
    ]
    text = module(
        MULTIPLY + start("f", "m") + "".join(lines) + f"\n  %x = {A} negate(%t39)" + finish("d", "f")
    )
    assert "100,000 elements" in check_compiled(text).unknowns[0]
