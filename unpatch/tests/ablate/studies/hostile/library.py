"""Functions that the patches of this study replace."""

from dataclasses import dataclass

import numpy

angry = False  #: whether what the lab records with should fail once


@dataclass
class Box:
    values: object


def as_hex(x):
    return hex(x)


def container(x):
    return [x]


def boxed(x):
    return Box(numpy.arange(x))


def digits(x):
    return numpy.array([x])


def elements(x):
    return numpy.zeros(x)


def cleared(x):
    return x


def early(x):
    return x


def disabled(x):
    return x


def broken(x):
    return x


def bystander(x):
    return x
