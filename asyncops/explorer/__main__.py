"""``python -m asyncops.explorer``: holds the checker to the explorer on many generated programs.

Prints a table, and small programs for every law that is broken. Exit status 1 if so, 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from asyncops.explorer.comparing import DEFAULT_LIMIT
from asyncops.explorer.tallying import Tally, tally_programs
from stateful.errors import StatefulError

PROGRESS_EVERY = 1000


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the comparison; an interrupt ends it early with the table of what was done."""
    options = _parser().parse_args(arguments)
    tally = Tally()
    try:
        for tally in tally_programs(options.seed, options.programs, first=options.first, limit=options.limit):
            _report(tally)
    except StatefulError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    print(tally.table())
    return 1 if tally.broken else 0


def _report(tally: Tally) -> None:
    """Prints what is new, and on the error stream how far the run is."""
    for example in tally.take_examples():
        print(example, flush=True)
    if tally.programs % PROGRESS_EVERY == 0:
        broken = sum(tally.broken.values())
        print(f"{tally.programs:,} programs, {broken} disagreements", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m asyncops.explorer", description=__doc__)
    parser.add_argument("--programs", type=int, default=1000, help="how many to generate (1000)")
    parser.add_argument("--seed", type=int, default=0, help="which sequence of programs (0)")
    parser.add_argument(
        "--first", type=int, default=0, help="number of the first program of the sequence (0)"
    )
    parser.add_argument(
        "--limit", type=int, default=DEFAULT_LIMIT, help=f"states to explore per program ({DEFAULT_LIMIT})"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
