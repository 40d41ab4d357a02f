"""Modules that move to npu and back keep their parameters, as they do between CPU and CUDA."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

Move = Callable[[nn.Module], nn.Module]
MOVES: dict[str, Move] = {
    "npu": lambda model: model.npu(),
    "to": lambda model: model.to("npu:1"),
    "to-with-dtype": lambda model: model.to("npu", torch.float64),
    "back": lambda model: model.npu().cpu(),
    "between": lambda model: model.to("npu:0").to("npu:1"),
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_parameters_are_the_same_objects(move: Move) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    before = dict(model.named_parameters())
    values = {name: parameter.detach().clone() for name, parameter in before.items()}
    model(torch.ones(2, 3)).sum().backward()
    assert move(model) is model
    for name, parameter in model.named_parameters():
        assert parameter is before[name]
        assert torch.equal(parameter.detach().cpu().float(), values[name])
        assert parameter.is_leaf
        assert parameter.grad is not None
        assert parameter.grad.device == parameter.device
        assert parameter.grad.dtype == parameter.dtype


def test_an_optimizer_made_before_the_move_trains() -> None:
    model = nn.Linear(3, 1)
    twin = copy.deepcopy(model)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1, momentum=0.9) for each in (model, twin)]
    model.npu()
    for _ in range(3):
        for each, optimizer, device in zip((model, twin), optimizers, ("npu", "cpu"), strict=True):
            optimizer.zero_grad()
            each(torch.ones(2, 3, device=device)).square().sum().backward()
            optimizer.step()
    assert torch.equal(model.weight.cpu(), twin.weight)


def test_a_gradient_on_another_device_is_not_added_to_the_old_one() -> None:
    model = nn.Linear(2, 1)
    for device in ("cpu", "npu:0", "npu:1", "cpu"):
        model.to(device)
        model(torch.ones(1, 2, device=device)).sum().backward()
    assert model.weight.grad is not None
    assert model.weight.grad.tolist() == [[4.0, 4.0]]


def test_tied_weights_stay_tied() -> None:
    embedding, head = nn.Embedding(4, 2), nn.Linear(2, 4, bias=False)
    head.weight = embedding.weight
    nn.ModuleList([embedding, head]).npu()
    assert head.weight is embedding.weight
    assert head.weight.device.type == "npu"


def test_a_module_without_data_cannot_move_with_data() -> None:
    model = nn.Linear(2, 2, device="meta")
    with pytest.raises(NotImplementedError, match="to_empty"):
        model.to("npu")
    assert model.to_empty(device="npu").weight.device.type == "npu"


def test_a_tensor_takes_the_data_of_one_on_npu() -> None:
    tensor, other = torch.ones(2), torch.zeros(3, device="npu")
    tensor.data = other
    assert tensor.device == other.device
    assert tensor.data_ptr() == other.data_ptr()
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        tensor.data = torch.ones(2, device="meta")
