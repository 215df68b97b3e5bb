from __future__ import annotations

import pytest

from asyncops.checker.order import Order
from asyncops.explorer.__main__ import main


def rows(text: str) -> dict[str, str]:
    return {line[:44].strip(): line[44:].strip() for line in text.splitlines() if len(line) == 56}


def test_a_table_is_printed(capsys):
    assert main(["--programs", "20"]) == 0
    table = rows(capsys.readouterr().out)
    assert table["programs"] == "20"
    assert table["law broken: missed race"] == "0"


def test_a_part_of_a_sequence_is_that_part(capsys):
    states = []
    for arguments in (["--programs", "6"], ["--programs", "4"], ["--programs", "2", "--first", "4"]):
        main(arguments)
        states.append(int(rows(capsys.readouterr().out)["states explored"].replace(",", "")))
    assert states[0] == states[1] + states[2]


def test_a_broken_law_is_shown_by_a_small_program(capsys, monkeypatch):
    monkeypatch.setattr(Order, "races", lambda order: ())
    assert main(["--programs", "10"]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("missed race: ")
    example = printed.split("\n\n")[0].splitlines()
    assert len([line for line in example if line.startswith("  ")]) <= 3


def test_an_interrupt_leaves_the_table(capsys, monkeypatch):
    def interrupted(*_args, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr("asyncops.explorer.tallying.compare", interrupted)
    assert main(["--programs", "5"]) == 0
    captured = capsys.readouterr()
    assert rows(captured.out)["programs"] == "0"
    assert captured.err == "interrupted\n"


def test_a_limit_of_nothing_is_refused(capsys):
    assert main(["--limit", "0"]) == 2
    assert capsys.readouterr().err == "limit: 0 states hold no program; give 1 or more\n"


def test_help_says_what_it_is_for(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "holds the checker to the explorer" in capsys.readouterr().out
