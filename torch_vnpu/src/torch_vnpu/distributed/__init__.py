"""Collective communication and RPC of npu tensors: torch's own CPU transports, over the bytes that the tensors have."""
