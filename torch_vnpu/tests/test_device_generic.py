"""Tests in PyTorch's own device-generic style, instantiated for this backend as PyTorch's test-suite would be.

The instantiated classes carry the device's name, so a run of them shows that `torch.npu` has what that test base asks for.
"""

import unittest

import torch
from torch.testing import make_tensor
from torch.testing._internal.common_device_type import (
    deviceCountAtLeast,
    dtypes,
    instantiate_device_type_tests,
    onlyCPU,
    onlyPRIVATEUSE1,
    ops,
    precisionOverride,
    skipMeta,
)
from torch.testing._internal.common_methods_invocations import binary_ufuncs, op_db
from torch.testing._internal.common_utils import TestCase, parametrize

_WANTED = ("add", "nn.functional.linear", "sort", "cumsum")


class TestTensors(TestCase):
    """Construction, dtypes, several devices."""

    @dtypes(torch.float32, torch.int64, torch.bool, torch.complex64)
    def test_a_tensor_goes_to_the_device_and_back(self, device, dtype):
        made = make_tensor((3, 4), device=device, dtype=dtype)
        self.assertEqual(made.device.type, "npu")
        self.assertEqual(made.cpu().to(device), made)

    @deviceCountAtLeast(2)
    @dtypes(torch.float32)
    def test_devices_are_listed_with_the_current_one_first(self, devices, dtype):
        self.assertEqual(
            [torch.ones(1, dtype=dtype, device=one).device for one in devices], [torch.device(d) for d in devices]
        )
        self.assertEqual(torch.device(devices[0]).index, torch.npu.current_device())

    @parametrize("format", [torch.contiguous_format, torch.channels_last])
    def test_a_memory_format_is_kept(self, device, format):
        made = torch.empty(2, 3, 4, 5, device=device, memory_format=format)
        self.assertTrue((made + 1).is_contiguous(memory_format=format))

    @onlyPRIVATEUSE1
    def test_the_decorator_of_this_kind_of_backend_runs_it(self, device):
        self.assertEqual(torch.device(device).type, "npu")

    @onlyCPU
    def test_what_is_for_cpu_alone_is_skipped(self, device):
        self.fail("it ran on " + device)


class TestDerivatives(TestCase):
    """Autograd in double precision against finite differences."""

    @dtypes(torch.float64, torch.complex128)
    def test_gradients_are_those_of_finite_differences(self, device, dtype):
        inputs = [make_tensor((2, 3), device=device, dtype=dtype, requires_grad=True) for _ in range(2)]
        self.assertTrue(torch.autograd.gradcheck(lambda a, b: (a * b).tanh().sum(1), inputs))
        self.assertTrue(torch.autograd.gradgradcheck(lambda a, b: (a * b).sin(), inputs))

    @skipMeta
    @precisionOverride({torch.float32: 1e-3})
    @dtypes(torch.float32, torch.float64)
    def test_a_precision_override_reaches_the_test(self, device, dtype):
        off = 5e-4
        one = torch.ones(3, device=device, dtype=dtype)
        if dtype == torch.float32:
            self.assertEqual(one, one + off)
        else:
            with self.assertRaises(AssertionError):
                self.assertEqual(one, one + off)


class TestOperators(TestCase):
    """Tests over the operator database, as `@ops` generates them."""

    @ops(
        [op for op in op_db if op.name in _WANTED and not op.variant_test_name],
        allowed_dtypes=[torch.float32, torch.int64],
    )
    def test_an_operator_is_that_of_cpu(self, device, dtype, op):
        for sample in op.sample_inputs(device, dtype):
            there = op(sample.input, *sample.args, **sample.kwargs)
            host = sample.transform(lambda value: value.cpu() if isinstance(value, torch.Tensor) else value)
            self.assertEqual(there, op(host.input, *host.args, **host.kwargs), exact_device=False)

    @ops([op for op in binary_ufuncs if op.name in ("mul", "atan2")], allowed_dtypes=[torch.float32])
    def test_an_operator_writes_its_out(self, device, dtype, op):
        left, right = (make_tensor((4,), device=device, dtype=dtype, low=0.5) for _ in range(2))
        out = torch.empty(0, device=device, dtype=dtype)
        self.assertNotWarn(lambda: op(left, right, out=out))
        self.assertEqual(out, op(left, right))


for _class in (TestTensors, TestDerivatives, TestOperators):
    instantiate_device_type_tests(_class, globals(), only_for="privateuse1")
del _class


class TestInstantiation(unittest.TestCase):
    """What was generated above: where PyTorch finds no base for the device, it generates nothing and says nothing."""

    def test_each_class_exists_for_this_device_alone(self):
        made = [value for value in globals().values() if isinstance(value, type) and issubclass(value, TestCase)]
        # The first use of the base renames it, so the names end in PRIVATEUSE1 or in NPU.
        bases = {cls.__name__.removesuffix("PRIVATEUSE1").removesuffix("NPU") for cls in made if cls is not TestCase}
        self.assertEqual(bases, {"TestTensors", "TestDerivatives", "TestOperators"})
        self.assertEqual(len(made), 4)
