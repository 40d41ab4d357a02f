"""Whether a replacement takes what the original takes, compared with trying all small calls."""

from __future__ import annotations

import functools
import itertools
from inspect import Parameter, Signature

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unpatch.patches.signatures import differs, incompatibility

NAMES = ("a", "b", "c")


@st.composite
def signatures(draw):
    kinds = draw(st.lists(st.sampled_from(list(type(Parameter.KEYWORD_ONLY))), max_size=4))
    kinds = sorted(kinds)
    parameters, seen, optional = [], set(), False
    names = iter(draw(st.permutations(NAMES)))
    for kind in kinds:
        variadic = kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
        if variadic and kind in seen:
            continue
        seen.add(kind)
        name = {Parameter.VAR_POSITIONAL: "args", Parameter.VAR_KEYWORD: "options"}.get(kind) or next(names, None)
        if name is None:
            continue
        optional = kind is not Parameter.KEYWORD_ONLY and optional
        default = Parameter.empty
        if not variadic and (optional or draw(st.booleans())):
            default, optional = 0, kind is not Parameter.KEYWORD_ONLY
        parameters.append(Parameter(name, kind, default=default))
    return Signature(parameters)


CALLS = [
    (tuple(range(count)), dict.fromkeys(names, 9))
    for count in range(5)
    for size in range(5)
    for names in itertools.combinations((*NAMES, "d"), size)
]


def _takes(signature, call):
    try:
        signature.bind(*call[0], **call[1])
    except TypeError:
        return False
    return True


@settings(max_examples=400, deadline=None)
@given(signatures(), signatures())
def test_a_difference_is_found_exactly_where_some_call_is_refused(before, after):
    refused = [call for call in CALLS if _takes(before, call) and not _takes(after, call)]
    found = differs(before, after)
    if refused:
        assert found, f"{before} -> {after}: {refused[0]}"
    elif found:
        assert "the replacement takes" in found, f"{before} -> {after} said: {found}"


@settings(max_examples=100, deadline=None)
@given(signatures())
def test_nothing_differs_from_itself(signature):
    assert differs(signature, signature) == ""
    assert differs(signature, Signature.from_callable(lambda *args, **options: None)) == ""


def _original(tensor, dim=None, *, keepdim=False): ...


@pytest.mark.parametrize(
    ("replacement", "says"),
    [
        (lambda tensor, dim=None, *, keepdim=False: 0, ""),
        (lambda tensor, dim=None, *, keepdim=False, more=1: 0, ""),
        (lambda tensor, *args, **options: 0, ""),
        (functools.partial(lambda out, tensor, dim=None, *, keepdim=False: 0, None), ""),
        (
            lambda tensor, dim=None: 0,
            "the original takes (tensor=…, keepdim=…), the replacement refuses: got an unexpected",
        ),
        (lambda tensor: 0, "the replacement refuses: got an unexpected keyword argument 'dim'"),
        (lambda tensor, dim, *, keepdim=False: 0, "refuses: missing a required argument: 'dim'"),
        (lambda dim, tensor=None, *, keepdim=False: 0, "the replacement"),
        (lambda tensor, axis=None, *, keepdim=False: 0, "unexpected keyword argument 'dim'"),
        (3, "the original can be called, the replacement cannot"),
    ],
)
def test_what_is_said_of_a_difference(replacement, says):
    found = incompatibility(_original, replacement, of_class=False)
    assert says in found
    assert bool(found) is bool(says)


class _Class:
    def method(self, x): ...

    @staticmethod
    def static(x): ...

    @classmethod
    def make(cls, x): ...

    @property
    def size(self): ...


@pytest.mark.parametrize(
    ("name", "replacement", "says"),
    [
        ("method", lambda tensor, x: 0, ""),
        ("method", lambda x: 0, "refuses"),
        ("method", staticmethod(lambda x: 0), "the original is a plain function, the replacement a static method"),
        ("static", staticmethod(lambda x: 0), ""),
        ("static", lambda x: 0, "the original is a static method, the replacement a plain function"),
        ("make", classmethod(lambda kind, x: 0), ""),
        ("make", classmethod(lambda kind: 0), "refuses"),
        ("size", property(lambda self: 0), ""),
        ("size", 3, "the original is a property, the replacement is not"),
    ],
)
def test_methods_and_descriptors(name, replacement, says):
    found = incompatibility(_Class.__dict__[name], replacement, of_class=True)
    assert says in found
    assert bool(found) is bool(says)


def test_where_no_signature_is_known_nothing_is_said():
    assert incompatibility(max, lambda: 0, of_class=False) == ""
    assert incompatibility({}, lambda: 0, of_class=False) == ""
