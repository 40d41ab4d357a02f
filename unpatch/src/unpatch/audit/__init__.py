"""Finding the patches that a package makes, with no cooperation from it: `unpatch audit`.

Two views are joined. A **snapshot** holds the identity of everything that modules, classes, functions and registries of other
packages contain, before and after the package is activated. The **trace** records every write that the package's own source
makes to them, with its line and its stack. `run` asks two fresh processes (`child`) and joins nothing itself.
"""
