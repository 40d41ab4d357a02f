"""Traces of torch.profiler: metadata and names that its writer would break, and the checker behind `vnpu trace`.

Nothing here imports torch: a trace can be checked wherever Python runs.
"""
