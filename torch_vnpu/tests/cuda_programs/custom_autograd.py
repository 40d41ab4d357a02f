"""An autograd function that says what it does under autocast."""

import torch
from torch.amp import custom_bwd, custom_fwd


class Scaled(torch.autograd.Function):
    @staticmethod
    @custom_fwd(device_type="cuda", cast_inputs=torch.float32)
    def forward(ctx, x, factor):
        assert x.dtype is torch.float32
        assert not torch.is_autocast_enabled("cuda")
        ctx.factor = factor
        return x * factor

    @staticmethod
    @custom_bwd(device_type="cuda")
    def backward(ctx, grad):
        return grad * ctx.factor, None


class Product(torch.autograd.Function):
    @staticmethod
    @torch.cuda.amp.custom_fwd
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    @torch.cuda.amp.custom_bwd
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        return grad @ b.T, a.T @ grad


x = torch.full((2, 2), 3.0, device="cuda", requires_grad=True)
with torch.autocast("cuda", dtype=torch.bfloat16):
    assert torch.is_autocast_enabled()
    assert torch.get_autocast_dtype("cuda") is torch.bfloat16
    y = Product.apply(x, x)
    assert y.dtype is torch.bfloat16
    z = Scaled.apply(y, 2.0)
assert z.dtype is torch.float32
z.sum().backward()
double = torch.rand(2, 2, dtype=torch.float64, device="cuda", requires_grad=True)
assert torch.autograd.gradcheck(Product.apply, (double, double.detach().clone()))
print("gradient:", x.grad[0, 0].item())
