"""Other tools on the kernels of the benchmark: JAX's race detector, in processes that are ended when they hang."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO

from asyncops.bench.cases import Pair
from asyncops.bench.outcomes import ERROR, HANG, Outcome

# The default is twice the number of cores, and copies share what the cores leave.
LARGE_CLOCKS = 64
STARTUP = 300.0
_COMMAND = ("-m", "asyncops.bench.detector")


@dataclass(frozen=True)
class Peer:
    """A setting of JAX's detector: how it runs copies, and the size of its vector clocks (0: its default)."""

    mode: str
    clocks: int

    @property
    def name(self) -> str:
        """As tables show it."""
        return f"JAX detector, {self.mode}, {f'{self.clocks} clocks' if self.clocks else 'default clocks'}"


PEERS = tuple(Peer(mode, clocks) for mode in ("on_wait", "eager") for clocks in (0, LARGE_CLOCKS))


def run_peer(peer: Peer, pairs: Iterable[Pair], limit: float) -> Iterator[Outcome]:
    """The wrong program and the clean one of each pair; one that takes longer than ``limit`` seconds, on a process
    that is ready, hangs.
    """
    worker = _Worker(peer)
    try:
        for pair in pairs:
            for wrong in (True, False):
                yield worker.ask(pair.name, wrong, limit)
    finally:
        worker.end()


class _Worker:
    """A process of :mod:`asyncops.bench.detector`, started when it is needed."""

    def __init__(self, peer: Peer) -> None:
        self._command = [sys.executable, *_COMMAND, peer.mode, str(peer.clocks)]
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str] = queue.Queue()

    def ask(self, kernel: str, wrong: bool, limit: float) -> Outcome:
        """The answer on one program; the process is replaced where none comes."""
        process = self._running()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps({"kernel": kernel, "wrong": wrong}) + "\n")
            process.stdin.flush()
            answer = self._answers.get(timeout=limit)
        except queue.Empty:
            self.end()
            return Outcome(kernel, wrong, HANG, seconds=limit, note=f"no answer in {limit:g} s")
        except BrokenPipeError:
            answer = ""
        if not answer:
            self.end()
            return Outcome(kernel, wrong, ERROR, note="the process died")
        outcome = Outcome(**json.loads(answer))
        if outcome.answer not in ("report", "silent") or outcome.note:
            # What is left of a program that went wrong is not to meet the next one.
            self.end()
        return outcome

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._answers = queue.Queue()
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            assert self._process.stdout is not None
            threading.Thread(target=_forward, args=(self._process.stdout, self._answers), daemon=True).start()
            # Imports take long on a busy machine; they are no part of an answer.
            self._answers.get(timeout=STARTUP)
        return self._process

    def end(self) -> None:
        """Ends the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # what was still to be written, nobody reads
                self._process.stdin.close()
            self._process = None


def _forward(lines: IO[str], answers: queue.Queue[str]) -> None:
    """Every line, and an empty one at the end."""
    for line in lines:
        answers.put(line)
    answers.put("")
