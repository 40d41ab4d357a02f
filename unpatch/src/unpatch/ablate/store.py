"""Finished trials of a study in one SQLite file, so that an interrupted study goes on where it stopped.

A file belongs to one fingerprint (sources, versions, options): trials of another one are refused, never mixed in.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sqlite3
from collections.abc import Mapping
from pathlib import Path

import msgspec

from unpatch.ablate.errors import StoreMismatchError
from unpatch.ablate.trial import Trial, TrialResult
from unpatch.files import WriteError

STORE = "study.sqlite"
TRIALS = "trials"

_SCHEMA = """
CREATE TABLE fingerprint (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE trials (
    name TEXT PRIMARY KEY,
    mode TEXT NOT NULL,
    suppressed TEXT NOT NULL,  -- JSON list of patch ids
    cases TEXT NOT NULL,       -- JSON list of case ids
    seconds REAL NOT NULL,
    result TEXT NOT NULL       -- JSON of unpatch.ablate.trial.TrialResult; tensor files are relative to this file
);
"""


class Store:
    """The finished trials in a folder. Used by one thread.

    Args:
        folder: where `study.sqlite` and `trials/` lie.
        fingerprint: what trials must agree in to be comparable, by name.
        resume: keep finished trials; otherwise begin anew, which removes `study.sqlite` and `trials/`.

    Raises:
        StoreMismatchError: `resume`, and the trials there have another fingerprint; or `trials/` there is no study's; or
            another run is using the folder.
        WriteError: the folder cannot be written.
    """

    def __init__(self, folder: Path, fingerprint: Mapping[str, str], *, resume: bool) -> None:
        self.folder = folder
        path = folder / STORE
        with contextlib.ExitStack() as opened:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                opened.callback(os.close, _locked(folder))
                if not resume or not path.exists():
                    _clear(folder)
                self._connection = sqlite3.connect(path)
                opened.callback(self._connection.close)
            except (OSError, sqlite3.OperationalError) as error:
                raise WriteError(f"Cannot write into {folder}: {error}. Give another --out.") from error
            self._begin(path, fingerprint)
            self._opened = opened.pop_all()

    def _begin(self, path: Path, fingerprint: Mapping[str, str]) -> None:
        try:
            tables = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if not tables:
                self._connection.executescript(_SCHEMA)
                with self._connection:
                    self._connection.executemany("INSERT INTO fingerprint VALUES (?, ?)", fingerprint.items())
                return
            stored = dict(self._connection.execute("SELECT name, value FROM fingerprint"))
        except sqlite3.DatabaseError as error:
            raise StoreMismatchError(
                f"{path} is no store of a study ({error}); run without --resume to begin anew."
            ) from error
        differing = sorted(name for name in {*stored, *fingerprint} if stored.get(name) != fingerprint.get(name))
        if differing:
            raise StoreMismatchError(
                f"The finished trials in {path} are of another state of {', '.join(differing[:5])}"
                f"{' …' if len(differing) > 5 else ''}; run without --resume to begin anew."
            )

    def get(self, trial: Trial) -> TrialResult | None:
        """The result of an earlier run of exactly this trial, if there is one."""
        row = self._connection.execute("SELECT result FROM trials WHERE name = ?", (trial.name,)).fetchone()
        if row is None:
            return None
        result = msgspec.json.decode(row[0], type=TrialResult)
        return result if result.trial == trial else None

    def put(self, result: TrialResult) -> None:
        """Keep a finished trial; it is on disk when this returns."""
        trial = result.trial
        row = (
            trial.name,
            trial.mode,
            _json(trial.suppressed),
            _json(trial.cases),
            result.seconds,
            _json(result),
        )
        with self._connection:
            self._connection.execute("INSERT OR REPLACE INTO trials VALUES (?, ?, ?, ?, ?, ?)", row)

    def close(self) -> None:
        """Close the file; the store cannot be used any more."""
        self._opened.close()


def _locked(folder: Path) -> int:
    """A descriptor that holds the folder against other runs; the kernel lets go of it even when this process is killed."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise StoreMismatchError(f"Another run is using {folder}; wait for its end, or give another --out.") from None
    except OSError:  # a file system without locks
        pass
    return descriptor


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _clear(folder: Path) -> None:
    store, trials = folder / STORE, folder / TRIALS
    if trials.exists() and not store.exists():
        # Nobody's evidence is deleted by a mistyped --out.
        raise StoreMismatchError(
            f"{trials} exists but no {STORE} beside it; give another --out, or remove it yourself."
        )
    if trials.exists():
        shutil.rmtree(trials)
    store.unlink(missing_ok=True)
