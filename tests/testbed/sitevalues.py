"""A values file that uses every key, for the shipped rules."""

from __future__ import annotations

VALUES = """\
job: agents.v2
runbook_base: https://wiki.example.org/on-call
profile: large
labels: {team: ai-platform}
thresholds: {memory_share: 0.7, retired_pages: 20}
pools:
  serve: {thresholds: {cpu_share: 0.97, filesystem_free_share_warning: 0.1, mount_slow_factor: 8}}
  train: {thresholds: {samples_share: 0.8}}
alerts:
  NodeMemoryHigh: {severity: warning, wait: 30m}
  FilesystemSpaceLow: {severity: warning, keep_firing_for: 10m}
  OomKill: {enabled: false}
  PcieDegraded: {labels: {board: hardware}}
"""
