"""nodevitals: the per-node health exporter and alerting rule pack for AI clusters."""

__version__ = "0.3.0"
