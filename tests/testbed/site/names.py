"""The names of the nodes."""

GPU_NODES, NPU_NODES, NODES_PER_LEAF = 12, 4, 4


def name_of(number: int) -> str:
    """Return the name of a node."""
    return f"gpu-{number:02}" if number < GPU_NODES else f"npu-{number - GPU_NODES:02}"
