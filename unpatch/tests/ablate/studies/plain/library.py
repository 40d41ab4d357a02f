"""The library that this study patches: each function stands for one kind of patch."""

import warnings


def same(x):
    return 2 * x


def changed(x):
    return 2 * x


def refused(x):
    return 2 * x


def missing(x):
    raise NotImplementedError("not in this version")


def never(x):
    return 2 * x


def guarded(x):
    return 2 * x


def noisy(x):
    return 2 * x


def failing(x):
    raise ValueError("always")


def reworded(x):
    raise ValueError("the library's words")


def retyped(x):
    raise TypeError("the library's type")


def killed(x):
    return 2 * x


def stuck(x):
    return 2 * x


def told(x):
    warnings.warn("use other()", FutureWarning, stacklevel=2)
    return 2 * x


CONSTANT = 1
