"""How fast a dump of a compiled program is checked, and how that grows. Run it; it is not a test.

``python tests/benchmarks/bench_compiled.py [largest size]``. The exponent is the growth from the size before (1.0 is
linear).
"""

from __future__ import annotations

import math
import sys
import time

import asyncops

KIND = "f32[8,128]{1,0:T(8,128)}"


def module(count: int) -> str:
    """HLO text of one computation: a copy in flight across ``count`` additions."""
    lines = [f"  %p.0 = {KIND} parameter(0)", f"  %s = ({KIND}, {KIND}, u32[]{{:S(2)}}) copy-start(%p.0)"]
    lines += [
        f'  %p.{n} = {KIND} add(%p.{n - 1}, %p.0), metadata={{op_name="jit(f)/add"}}' for n in range(1, count)
    ]
    lines.append(f"  %d = {KIND} copy-done(%s)")
    lines.append(f"  ROOT %r = ({KIND}, {KIND}) tuple(%d, %p.{count - 1})")
    return "\n".join(
        ["HloModule m, is_scheduled=true", "", f"ENTRY %e (p: {KIND}) -> {KIND} {{", *lines, "}", ""]
    )


def main() -> None:
    """Prints a line for each size."""
    largest = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    asyncops.check_compiled(module(100))
    before = None
    print(f"{'instructions':>12} {'seconds':>8} {'a second':>10} {'exponent':>8}")
    for count in (largest // 16, largest // 4, largest):
        text = module(count)
        begin = time.process_time()
        report = asyncops.check_compiled(text)
        seconds = time.process_time() - begin
        assert report.verdict == "clean", report
        growth = f"{math.log(seconds / before, 4):8.2f}" if before else ""
        print(f"{count:12,} {seconds:8.2f} {count / seconds:10,.0f} {growth}")
        before = seconds


if __name__ == "__main__":
    main()
