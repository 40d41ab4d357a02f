"""Manage, find and ablate monkey patches, and prove which of them can be deleted.

`unpatch.patches` declares and applies patches, `unpatch.audit` finds those that nobody declared, `unpatch.study` declares what
must keep working without them, `unpatch.ablate` runs the arms in fresh processes and judges, `unpatch.ops` lists the operators
that a program runs, `unpatch.observe` records what happens meanwhile, `unpatch.report` shows all results.
"""

__version__ = "0.1.0"
