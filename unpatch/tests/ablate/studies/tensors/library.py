"""Functions on tensors, each patched in one way."""


def same(x):
    return x * 2


def other_operators(x):
    return x * 2


def other_values(x):
    return x * 2


def keys(x):
    return x * 2


def noisy(x):
    return x * 2


def in_thread(x):
    return x * 2


def compiled(x):
    return x * 2
