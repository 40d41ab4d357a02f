"""Traces of torch.profiler: metadata and names that its writer would break, and the checker behind `vnpu trace`.

Nothing here imports torch, and the command `vnpu trace` does not load it either: it runs these modules without the package's
own code (`torch_vnpu_cli`). `import torch_vnpu.profiler` in a program imports the package first, and so torch.
"""
