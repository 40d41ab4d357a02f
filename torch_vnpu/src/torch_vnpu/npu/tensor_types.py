"""The legacy tensor types `torch.npu.FloatTensor` and so on: names for a dtype on npu, for `Tensor.type` and `isinstance`."""

from typing import Any, NoReturn

import torch

_DTYPES = {
    "FloatTensor": torch.float32,
    "DoubleTensor": torch.float64,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "ShortTensor": torch.int16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "BoolTensor": torch.bool,
}


class _TensorType(type):
    """A class that no object has as its own: tensors of its dtype on npu are its instances."""

    dtype: torch.dtype

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch.Tensor) and instance.device.type == "npu" and instance.dtype == cls.dtype

    def __call__(cls, *arguments: Any, **settings: Any) -> NoReturn:
        raise TypeError(
            f"{cls.__name__} cannot be called; make the tensor with torch.tensor(..., dtype={cls.dtype}, device='npu')"
        )


# torch reads the type's name, which for these types is dotted.
TENSOR_TYPES = {
    short: _TensorType(f"torch.npu.{short}", (), {"dtype": dtype, "__module__": "torch.npu"})
    for short, dtype in _DTYPES.items()
}
