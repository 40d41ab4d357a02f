"""Loads torch_vnpu when torch is imported."""
