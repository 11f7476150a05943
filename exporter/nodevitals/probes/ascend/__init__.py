"""The probe `ascend`: runs npu-smi and hccn_tool, parses what they print, reports the NPUs."""
