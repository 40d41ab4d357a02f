"""PyTorch's own operator database, run on npu against CPU.

`check` compares one operator with one dtype, `workers` runs many of them in processes that may crash or hang, `known` says why
the rest differ, and `python -m opinfo` writes the figures of a full pass.
"""
