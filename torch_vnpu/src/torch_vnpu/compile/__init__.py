"""torch.compile on npu. Loaded by hooks once torch's own compiler loads (`_init/registry/compilers.py`), never at import."""
