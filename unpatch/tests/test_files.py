"""Files are written whole, or not at all."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from unpatch.files import WriteError, write_whole, written_whole


def test_text_and_bytes_arrive_as_they_are_in_a_new_folder(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b.txt"
    assert write_whole(path, "é\r\n\n") == path
    assert path.read_bytes() == "é\r\n\n".encode()
    write_whole(path, b"\x00\xff")
    assert path.read_bytes() == b"\x00\xff"
    assert os.listdir(path.parent) == ["b.txt"]


def test_the_file_gets_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    written = write_whole(tmp_path / "written", "x")
    assert written.stat().st_mode == (tmp_path / "other").stat().st_mode


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_whole(tmp_path / "file", "old")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_refusal_names_the_path_and_the_reason(tmp_path: Path) -> None:
    write_whole(tmp_path / "file", "x")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "file" / "below", tmp_path / "folder"):
        with pytest.raises(WriteError, match=rf"^Cannot write {path}: (File exists|.*directory)"):
            write_whole(path, "y")
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


def test_what_is_written_piece_by_piece_is_there_when_the_context_ends(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "file"
    for content in (b"first", b"second"):
        with written_whole(path) as file:
            file.write(content)
            assert not path.exists() or path.read_bytes() == b"first"
        assert path.read_bytes() == content
    assert os.listdir(path.parent) == ["file"]


def test_an_exception_between_the_pieces_leaves_what_was_there(tmp_path: Path) -> None:
    path = write_whole(tmp_path / "file", "old")

    def interrupted() -> None:
        with written_whole(path) as file:
            file.write(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_link_stays_one_and_what_it_names_is_written(tmp_path: Path) -> None:
    path = write_whole(tmp_path / "file", "old")
    (tmp_path / "link").symlink_to("file")
    write_whole(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert path.read_text() == "new"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_written_as_it_is(tmp_path: Path) -> None:  # as a device is, which a test must not endanger
    path = tmp_path / "pipe"
    os.mkfifo(path)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(path.read_text()))
    reader.start()
    write_whole(path, "content")
    reader.join()
    assert read == ["content"]
    assert path.is_fifo()
