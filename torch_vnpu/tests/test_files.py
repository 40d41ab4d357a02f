"""Files that are written piece by piece are whole, or not there."""

import os
from pathlib import Path

import pytest

from torch_vnpu._files import written_whole


def test_the_file_has_its_content_when_the_context_ends(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "file"
    for content in (b"first", b"second"):
        with written_whole(path) as file:
            file.write(content)
            assert not path.exists() or path.read_bytes() == b"first"
        assert path.read_bytes() == content
    assert os.listdir(path.parent) == ["file"]


def test_an_exception_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def interrupted() -> None:
        with written_whole(path) as file:
            file.write(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_device_stays_one() -> None:
    with written_whole(Path(os.devnull)) as file:
        file.write(b"gone")
    assert Path(os.devnull).is_char_device()
