"""Ascend NPUs: what npu-smi and hccn_tool print, as typed records; what its fault codes mean."""
