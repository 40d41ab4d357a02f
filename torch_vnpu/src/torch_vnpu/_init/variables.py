"""The environment variables that this package reads, and what each is for: for `vnpu info`, and for whoever looks for one."""

VARIABLES: dict[str, str] = {
    "ASCEND_HOME_PATH": "where CANN is installed; not set: the virtual runtime",
    "ASCEND_LAUNCH_BLOCKING": "1: every task runs before its call returns",
    "ASCEND_OPP_DEBUG_PATH": "a folder for debug kernels: launches block, and each operator's start is printed",
    "ASCEND_OPP_PATH": "where CANN's operators are installed",
    "ASCEND_RT_VISIBLE_DEVICES": "which devices there are for this process, such as 0,1",
    "NPU_ASD_ENABLE": "1: gradients are watched for silent data corruption",
    "TASK_QUEUE_ENABLE": "0: tasks run before their call returns; 1 (default): they are queued",
    "TORCH_DEVICE_BACKEND_AUTOLOAD": "torch's own; 0: `import torch` does not load this backend",
    "TORCH_NPU_COMPACT_ERROR_OUTPUT": "1: messages without error codes",
    "TORCH_NPU_LOGS": "what is logged, such as op_plugin,+dispatch",
    "TORCH_NPU_LOGS_FILTER": "which lines of the logs are kept (+text) or dropped (-text)",
    "TORCH_NPU_SANITIZER": "1, or raise, warn, collect: the sanitizer is on from the import on",
    "TORCH_NPU_SANITIZER_SUPPRESSIONS": "a file that names findings which are not reported",
    "TORCH_TRANSFER_TO_NPU": "1: programs for CUDA run on npu",
    "UNPATCH_DISABLE": "patches or groups of patches that are not applied, separated by commas",
    "VNPU_DEVICES": "how many devices the virtual machine has (2)",
    "VNPU_MEMORY": "how large the memory of each is (8G)",
}
