"""Sparse tensors: there are none on npu, and the attempt fails with one sentence instead of a tensor on CPU."""

import io

import pytest
import torch

DENSE = [[0.0, 2.0], [3.0, 0.0]]


def dense():
    return torch.tensor(DENSE, device="npu")


def host(layout):
    return torch.tensor(DENSE).to_sparse(layout=layout)


def loaded(layout):
    file = io.BytesIO()
    torch.save(host(layout), file)
    file.seek(0)
    return torch.load(file, map_location="npu")


ATTEMPTS = {
    "COO of host lists": lambda: torch.sparse_coo_tensor([[0, 1], [1, 0]], [2.0, 3.0], (2, 2), device="npu"),
    "COO without a size": lambda: torch.sparse_coo_tensor([[0, 1], [1, 0]], [2.0, 3.0], device="npu"),
    "COO of npu tensors": lambda: torch.sparse_coo_tensor(
        torch.tensor([[0, 1], [1, 0]], device="npu"), torch.tensor([2.0, 3.0], device="npu"), (2, 2)
    ),
    "empty COO": lambda: torch.sparse_coo_tensor(size=(2, 2), device="npu"),
    "CSR": lambda: torch.sparse_csr_tensor([0, 1, 2], [1, 0], [2.0, 3.0], (2, 2), device="npu"),
    "CSR of npu tensors": lambda: torch.sparse_csr_tensor(
        *(torch.tensor(part, device="npu") for part in ([0, 1, 2], [1, 0], [2.0, 3.0])), size=(2, 2)
    ),
    "CSC": lambda: torch.sparse_csc_tensor([0, 1, 2], [1, 0], [2.0, 3.0], (2, 2), device="npu"),
    "BSR": lambda: torch.sparse_bsr_tensor([0, 1], [0], [DENSE], (2, 2), device="npu"),
    "any compressed": lambda: torch.sparse_compressed_tensor(
        [0, 1, 2], [1, 0], [2.0, 3.0], (2, 2), layout=torch.sparse_csr, device="npu"
    ),
    "empty with a layout": lambda: torch.empty(2, 2, layout=torch.sparse_coo, device="npu"),
    "empty with a CSR layout": lambda: torch.empty(2, 2, layout=torch.sparse_csr, device="npu"),
    "zeros with a layout": lambda: torch.zeros(2, 2, layout=torch.sparse_coo, device="npu"),
    "empty_like with a layout": lambda: torch.empty_like(dense(), layout=torch.sparse_coo),
    "like a host tensor": lambda: torch.zeros_like(host(torch.sparse_coo), device="npu"),
    "to_sparse": lambda: dense().to_sparse(),
    "to_sparse_csr": lambda: dense().to_sparse_csr(),
    "to_sparse_csc": lambda: dense().to_sparse_csc(),
    "to_sparse_bsr": lambda: dense().to_sparse_bsr((1, 1)),
    "a host COO moved": lambda: host(torch.sparse_coo).to("npu"),
    "a host CSR moved": lambda: host(torch.sparse_csr).to("npu"),
    "a host COO moved by its method": lambda: host(torch.sparse_coo).npu(),
    "a sparse mask": lambda: dense().sparse_mask(host(torch.sparse_coo)),
    "a sparse gradient": lambda: (
        torch.nn.functional.embedding(torch.tensor([1], device="npu"), dense().requires_grad_(), sparse=True)
        .sum()
        .backward()
    ),
    "a saved COO": lambda: loaded(torch.sparse_coo),
    "a saved CSR": lambda: loaded(torch.sparse_csr),
    "a sparse gradient of bags": lambda: (
        torch.nn.EmbeddingBag(3, 4, sparse=True, mode="sum", device="npu")(torch.tensor([[1]], device="npu"))
        .sum()
        .backward()
    ),
    "a host sparse operand": lambda: torch.sparse.mm(host(torch.sparse_coo), dense()),
    "a host sparse operand of addition": lambda: dense() + host(torch.sparse_coo),
}


@pytest.mark.parametrize("name", ATTEMPTS)
def test_an_attempt_is_refused_in_a_sentence(name):
    with pytest.raises(RuntimeError) as caught:
        ATTEMPTS[name]()
    said = str(caught.value)
    assert said.startswith("npu: there are no sparse tensors on this device")
    assert "\n" not in said
    assert ".cpu()" in said


def test_a_tensor_of_onednn_is_refused_by_its_own_name():
    with pytest.raises(NotImplementedError, match=r"^npu: there are no oneDNN tensors on this device .*to_mkldnn"):
        dense().to_mkldnn()


def test_the_device_works_after_a_refusal():
    with pytest.raises(NotImplementedError):
        dense().to_sparse()
    assert dense().sum().item() == 5
