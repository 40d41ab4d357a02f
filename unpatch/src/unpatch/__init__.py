"""Manage, find and ablate monkey patches, and prove which of them can be deleted.

`unpatch.patches` declares and applies patches, `unpatch.study` declares what must keep working without them,
`unpatch.ablate` runs the arms in fresh processes and judges, `unpatch.report` writes the evidence.
"""

__version__ = "0.1.0"
