"""Files are replaced whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from asyncops.writing import write_whole


def test_a_file_is_made_and_replaced(tmp_path: Path) -> None:
    file = tmp_path / "report.txt"
    write_whole(file, "one")
    file.chmod(0o640)
    write_whole(file, "two")
    assert file.read_text() == "two"
    assert file.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_interrupt_leaves_what_was_there(
    error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "report.txt"
    file.write_text("old")

    def broken(path: Path, text: str, **_: object) -> None:
        path.write_bytes(text[:3].encode())
        raise error

    monkeypatch.setattr(Path, "write_text", broken)
    with pytest.raises(error):
        write_whole(file, "new and longer")
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.txt").write_text("old")
    link = tmp_path / "link.txt"
    link.symlink_to("real.txt")
    write_whole(link, "new")
    assert link.is_symlink()
    assert (tmp_path / "real.txt").read_text() == "new"


def test_a_device_is_written_to() -> None:
    write_whole(Path(os.devnull), "text")
    assert not Path(os.devnull).is_file()
