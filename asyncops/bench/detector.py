"""JAX's race detector on one program after the other: the process that may hang.

``python -m asyncops.bench.detector MODE CLOCKS`` says that it is ready, and then answers each line
``{"kernel": ..., "wrong": ...}`` of its input with a line. MODE is a ``dma_execution_mode`` of
``pltpu.InterpretParams``, CLOCKS its ``vector_clock_size`` (0: the default). After an exception the state of the
interpreter is not to be relied on, so the process ends.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import re
import sys
import time
from typing import Any, Literal

import jax
import numpy as np
from jax.experimental.pallas import tpu as pltpu

from asyncops.bench.cases import Draft, Pair, find_pair
from asyncops.bench.outcomes import ERROR, REPORT, SILENT, UNSUPPORTED, Outcome

RACE = "RACE DETECTED"
LEFT_OVER = "has non-zero count"
READY = "ready"
# What interpret mode says of programs that it cannot run: futures that leave a kernel, say.
_REFUSALS = (NotImplementedError, AttributeError)
Mode = Literal["eager", "on_wait"]


def main(arguments: list[str]) -> None:
    """Serves until the input ends or a program breaks."""
    mode, clocks = arguments
    answers = os.fdopen(os.dup(1), "w")
    print(READY, file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        outcome = run(find_pair(request["kernel"]), request["wrong"], _mode(mode), int(clocks))
        print(json.dumps(dataclasses.asdict(outcome)), file=answers, flush=True)
        if outcome.answer in (ERROR, UNSUPPORTED):
            # Other threads of the interpreter may wait for ever.
            os._exit(0)


def _mode(name: str) -> Mode:
    return "eager" if name == "eager" else "on_wait"


def run(pair: Pair, wrong: bool, mode: Mode, clocks: int) -> Outcome:
    """Runs one program under the detector; may hang."""
    interpret = pltpu.InterpretParams(
        detect_races=True,
        dma_execution_mode=mode,
        vector_clock_size=clocks or None,
        num_cores_or_threads=pair.cores,
    )
    pltpu.reset_tpu_interpret_mode_state()
    printed = io.StringIO()
    begin = time.perf_counter()
    error: Exception | None = None
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        try:
            program = pair.build(Draft(wrong, interpret, abstract=False))
            jax.block_until_ready(jax.jit(program.fn)(*map(_example, program.args)))
        except Exception as raised:
            error = raised
    return _outcome(pair, wrong, printed.getvalue(), error, time.perf_counter() - begin)


def _example(argument: Any) -> Any:
    """Values for an argument of which only the shape is given."""
    if isinstance(argument, np.ndarray):
        return argument
    count = int(np.prod(argument.shape))
    return (np.arange(count) % 7).reshape(argument.shape).astype(argument.dtype)


def _outcome(pair: Pair, wrong: bool, printed: str, error: Exception | None, seconds: float) -> Outcome:
    text = printed + ("" if error is None else str(error))
    races, left = text.count(RACE), text.count(LEFT_OVER)
    if races or left:
        answer = REPORT
    elif error is not None:
        answer = UNSUPPORTED if isinstance(error, _REFUSALS) else ERROR
    else:
        answer = SILENT
    name = re.escape(os.path.basename(pair.file))
    lines = {int(n) for n in re.findall(rf"{name}:(\d+)", text)}
    note = (
        RACE if races else LEFT_OVER if left else "" if error is None else f"{type(error).__name__}: {error}"
    )
    return Outcome(
        pair.name,
        wrong,
        answer,
        line=bool(lines & pair.marked_lines()),
        findings=races + left,
        seconds=seconds,
        note=note[:200],
    )


if __name__ == "__main__":
    main(sys.argv[1:])
