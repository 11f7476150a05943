"""English texts of the pages that have a key; all other texts are in the templates.

A key selects a text by a value, such as the state of a check, or separates texts that are equal in
English but not in translation. In the catalogues of translations it is the context (msgctxt).
"""

from __future__ import annotations

TEXTS: dict[str, str] = {
    "checks": "Checks",
    "new": "New check",
    "leases": "Second-level monitoring",
    "schedules": "Schedules",
    "incidents": "Incidents",
    "notifications": "Notifications",
    "severity_critical": "critical",
    "severity_warning": "warning",
    "severity_info": "info",
    "kind": "Kind",
    "pair": "Pair",
    "matrix": "Matrix",
    "collective": "Collective",
    "node": "Node",
    "nodes": "Nodes",
    "check": "Check",
    "by_page": "page",
    "by_rest": "REST",
    "by_command": "command line",
    "by_resource": "resource",
    "by_schedule": "schedule",
    "by_alert": "alert",
    "by_job": "job",
    "queued": "queued",
    "running": "running",
    "done": "done",
    "canceled": "canceled",
    "ok": "ok",
    "bad": "bad",
    "unknown": "unknown",
    "wait_queued": "It waits for its nodes, or for its turn. This page refreshes itself.",
    "wait_running": "No verdict yet. This page refreshes itself.",
    "yes": "yes",
    "no": "no",
    "status_400": "The request cannot be read",
    "status_401": "You are not logged in",
    "status_403": "Your role does not permit this",
    "status_404": "There is no such page or check",
    "status_405": "This page does not take such a request",
    "status_409": "Not possible in the present state",
    "status_413": "The request is too large",
    "status_414": "The address is too long",
    "status_422": "A value is not valid",
    "status_429": "Too many at a time: try again later",
    "status_500": "A defect of the hub",
    "status_503": "The hub cannot do this now",
    "other_probes": "Other probes",
    "duration": "Duration",
    "schedule_name": "Name",
    "every": "Every",
    "window": "Window (UTC)",
    "spent_hours": "Node hours in 7 days",
    "last_check": "Last check",
    "next_start": "Next start, at the earliest",
    "why_not": "Why not started",
    "lease_waiting": "not asked yet",
    "lease_active": "active",
    "lease_refused": "no probe runs every second",
    "lease_unreachable": "agent does not answer",
    "about_pair": (
        "One test between two nodes: is this link as fast as it should be? Takes seconds."
    ),
    "about_matrix": (
        "Tests between all pairs of some nodes, or some rounds of them: which node is slow? "
        "Minutes."
    ),
    "about_collective": (
        "NCCL or HCCL over all nodes together, as a training job does it; where it fails or "
        "is slow, smaller groups find the node."
    ),
    "about_node": "Each node's own checks of its devices. No traffic.",
    "new_pair": "New check: a pair of nodes",
    "new_matrix": "New check: a matrix of nodes",
    "new_collective": "New check: a collective",
    "new_node": "New check: nodes by themselves",
    "nodes_field": "Nodes by name",
    "where": "Other labels",
    "preset": "Preset",
    "tool": "Tool",
    "operation": "Operation",
    "help_tool_pair": "perftest measures RDMA, iperf3 TCP.",
    "help_tool_collective": "nccl for NVIDIA GPUs, hccl for Ascend NPUs.",
    "help_operation_pair": (
        "_bw and tcp measure a rate, _lat a latency; several run one after the other. None: the "
        "first of the tool."
    ),
    "help_operation_collective": "As nccl-tests and the HCCL tests name it, such as all_reduce.",
    "device": "Device",
    "help_device_pair": (
        "mlx5_0, a list mlx5_0,mlx5_1, a pattern mlx5_*, or all; perftest needs it. For iperf3, "
        "network interfaces."
    ),
    "crossed": "Test each device with every device of the other node",
    "help_device_collective": "Only this RDMA device, such as mlx5_0; empty: all.",
    "sizes": "Message sizes",
    "help_sizes": "One size (64KiB), several (8B,64KiB,1MiB) or a sweep (8B..8GiB x2).",
    "port": "Port of the device",
    "help_port": "1 for most; the second port of one device is 2.",
    "iterations": "Messages per size",
    "help_iterations": "More of them take longer, and vary less.",
    "seconds": "Seconds per size",
    "help_seconds": "In place of a number of messages.",
    "queue_pairs": "Queue pairs",
    "help_queue_pairs": "For iperf3 parallel streams.",
    "gid_index": "GID index",
    "help_gid_index": "Empty: chosen on each node.",
    "traffic_class": "Traffic class",
    "help_traffic_class": "DSCP × 4, plus the ECN bits: 104 for DSCP 26.",
    "devices_per_node": "Devices per node",
    "help_devices_per_node": "GPUs or NPUs of each node that take part.",
    "devices_per_process": "Devices per process",
    "help_devices_per_process": (
        "-g of nccl-tests: 8 for one process per node with eight GPUs; the HCCL test has 1."
    ),
    "data_type": "Data type",
    "help_data_type": "float, half, bfloat16 of nccl-tests; fp32, fp16, bfp16 of the HCCL test.",
    "reduction": "Reduction operator",
    "help_reduction": (
        "sum, prod, min or max of all_reduce, reduce and reduce_scatter; avg and mulsum are NCCL's."
    ),
    "warm_up_iterations": "Warm-up iterations",
    "help_warm_up_iterations": "Before the iterations that are timed.",
    "help_iterations_collective": "Iterations that are timed.",
    "rounds": "Rounds",
    "help_rounds": (
        "In a round each node has one partner. Empty: all pairs; needed above 256 nodes."
    ),
    "environment": "Environment variables",
    "help_environment": "One NAME=VALUE per line, such as NCCL_ALGO=Ring; names of an allow-list.",
    "mca": "MCA parameters of Open MPI",
    "help_mca": "One NAME=VALUE per line, such as btl_tcp_if_include=eth0; names of an allow-list.",
    "expected": "Expected rate",
    "help_expected": (
        "Of a healthy link, such as 400Gb/s. Empty: nodes are compared with each other."
    ),
    "expected_latency": "Expected latency",
    "help_expected_latency": (
        "Of a healthy link, such as 2us. Empty: 5us on InfiniBand, 10us on RoCE, between physical "
        "ports."
    ),
    "help_expected_collective": (
        "Bus bandwidth of a healthy one, such as 2880Gb/s (360 GB/s). Empty: what the hardware of "
        "its nodes gives."
    ),
    "share": "Slow is below this percentage",
    "help_share": "Of the expected rate, or of the median.",
    "isolate": "Where it fails or is slow",
    "limit": "Time limit",
    "help_limit": "Of the whole check, such as 30m. Empty: from its cost.",
    "force": "Also test nodes in use by jobs",
    "note": "Note",
    "refused_invalid": "Not started: a value must be changed.",
    "refused_forbidden": "Not started: your role does not permit it.",
    "refused_not_found": "There is no such check.",
    "refused_conflict": "Not started: jobs use some nodes.",
    "refused_busy": "Not started: there is no room now.",
    "refused_unavailable": "Not started: the store does not work.",
    "isolations": "Out of service",
    "isolation_past": "Ended",
    "isolation_waiting": "waiting",
    "isolation_refused": "refused",
    "isolation_isolated": "out of service",
    "isolation_pending": "to be taken out",
    "isolation_testing": "being tested",
    "isolation_kept": "kept out",
    "isolation_returned": "returned",
    "isolation_canceled": "canceled",
    "isolation_ended": "ended",
    "isolation_restoring": "being returned",
    "repair_wanted": "to be started",
    "repair_started": "runs",
    "repair_succeeded": "succeeded",
    "repair_failed": "failed",
    "repair_timed_out": "not ended in time",
    "repair_unknown": "its end is unknown",
    "repair_canceled": "canceled",
    "repair_dry_run": "dry run: would be started",
    "no_fault": "no fault found",
    "unknown_hardware": "a device, a link or a mount failed",
    "unknown_threshold": "it is not known whether this is as fast as it should be",
    "unknown_harness": "the test itself failed; this says nothing about the hardware",
    "unknown_workload": "jobs use the nodes",
    "unknown_none": "nothing was measured",
    "failed_hardware": "{subject}: a device, a link or a mount failed",
    "failed_harness": "{subject}: the test failed to run",
    "failed_workload": "{subject}: in use by jobs",
    "usual_expected": "the expected rate",
    "usual_median": "the median",
    "usual_last": "the last like check",
    "usual_bus": "what the hardware of its nodes gives",
    "usual_any": "the usual rate",
    "comma": ", ",
    "clause": ", ",
    "subject_node": "{name}",
    "subject_link": "{name}",
    "subject_rail": "{name} of all nodes",
    "scope_node": "node",
    "scope_link": "link",
    "scope_rail": "rail",
    "sending": "sending",
    "receiving": "receiving",
    "hardware": "hardware",
    "threshold": "slow",
    "harness": "the test failed",
    "workload": "in use",
    "do_hardware_node": "Drain the node, look at its alerts, then at the suspects.",
    "do_hardware_link": (
        "Test both nodes with other partners; then look at the cables and switch ports "
        "between them."
    ),
    "do_hardware_rail": (
        "Look at this device on the nodes and at the switches of its rail; start with the alerts."
    ),
    "do_threshold_node": (
        "Compare link width, link speed and error counters with those of a fast node; then "
        "run the check again with more partners."
    ),
    "do_threshold_link": (
        "Run it again; if it stays, look at the cables and switch ports between the two nodes."
    ),
    "do_threshold_rail": (
        "All nodes are affected: look for a change of switches, drivers or parameters since "
        "the last good check."
    ),
    "do_threshold": (
        "Run it again with the expected rate, or pairs of physical ports with messages of "
        "1MiB. Where many pairs are slow, choose more rounds."
    ),
    "do_harness": "Open the failed test below, read its output, repair the test, and run it again.",
    "same_nodes": "Same nodes",
    "other_nodes": "Other nodes",
    "do_workload": "Wait until the jobs have ended, or choose other nodes.",
    "incident_opened": "Opened",
    "true_alarm": "true",
    "not_acknowledged": "not yet",
    "not_resolved": "not yet",
    "sent_at": "Sent",
    "second": "s",
    "minute": "min",
    "hour": "h",
    "day": "d",
}
