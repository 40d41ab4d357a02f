"""`unpatch.patches` is imported inside `import torch`: it must bring nothing with it."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(("versions", "brought"), [("", ["unpatch"]), ("python>=3", ["packaging", "unpatch"])])
def test_applying_patches_brings_in_the_standard_library_and_packaging_where_a_version_is_stated(versions, brought):
    code = (
        "import sys; before = set(sys.modules); import unpatch.patches as p; m = p.PatchManager('toy');"
        "m.declare(id='p', group='g', reason='r', versions=VERSIONS).replace('math.sqrt', abs); m.apply_all();"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before};"
        "print(*sorted(name for name in new if name not in sys.stdlib_module_names))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code.replace("VERSIONS", repr(versions))], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == brought
