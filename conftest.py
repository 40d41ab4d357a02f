"""Imports the packages before any test module.

A distribution's directory is named like its package. pytest names test modules after their path (`unpatch.tests…`) and
would otherwise take the directory for the package.
"""

import torch_vnpu  # noqa: F401
import unpatch  # noqa: F401
