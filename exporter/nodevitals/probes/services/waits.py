"""What a process in uninterruptible sleep waits in, by the kernel function of /proc/PID/wchan.

Pure: the name of a function in, one word of a closed list out. The kernel's own names of functions
are no interface, so only their prefixes count, and what is not known is `other`.
"""

from __future__ import annotations

import re

WAITS = (
    "nfs",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "cifs",
    "fuse",
    "nvidia",
    "ascend",
    "rdma",
    "block",
    "lock",
    "paused",
    "other",
    "unknown",
)
_BLOCK = (
    "io_schedule|blk|bio_|submit_bio|rq_qos|wbt_|nvme|scsi|sd_|md_|raid|dm_|jbd2|ext4|xfs|xlog|"
    "btrfs|f2fs|wait_on_page|__wait_on_page|folio_wait|wait_on_buffer|__wait_on_buffer|"
    "balance_dirty|wait_on_bit_io|bit_wait_io|writeback|wb_wait|__lock_page|__folio_lock|"
    "read_swap|iomap|sync_inodes|do_get_write_access|wait_transaction|wait_current_trans"
)
# The first that matches counts: file systems of the network before what they share with disks.
_PREFIXES = (
    # A container that is paused, and the parent of a vfork(2): neither is a fault.
    ("paused", "__refrigerator|get_signal|do_freezer_trap|.*vfork_done|.*_vfork$"),
    ("nfs", "nfs|_?_?rpc_|xprt_|svc_|nlm|lockd"),
    ("lustre", "ll_|ldlm_|ptlrpc|cl_(?:sync|lock|io)|osc_|lov_|mdc_|obd_|lnet|lustre|mgc_|l_wait"),
    ("gpfs", "mm_?fs|gpfs|cxi|_?ZN.*cxi"),
    ("beegfs", "beegfs|Fhgfs|FhgfsOps|MessagingTk|Socket_"),
    ("ceph", "ceph|rbd_|wait_(?:for_)?caps|try_get_cap"),
    ("cifs", "cifs|smb[23]?_|wait_for_response"),
    ("fuse", "fuse_|__fuse|request_wait_answer|wekafs|wekafsio"),
    ("nvidia", "_?nv_|nvidia|uvm|os_acquire|_nv\\d|rm_|nvlink|nvswitch"),
    ("ascend", "devdrv|hisi|drv_|davinci|svm_|tsdrv|hdc"),
    ("rdma", "ib_|rdma|ucma|uverbs|mlx[45]|cm_destroy|cma_|bnxt_re|irdma|cmd_exec"),
    ("block", _BLOCK),
    ("lock", "rwsem_|down_|_?_?mutex|percpu_rwsem|__percpu|call_rwsem|rt_mutex|lock_|__lock"),
)
_EXPRESSIONS = tuple((wait, re.compile(prefixes)) for wait, prefixes in _PREFIXES)
_MAX_CHARACTERS = 200


def wait_of(wchan: str | None) -> str:
    """The word for the text of /proc/PID/wchan; `unknown` where it could not be read or names no
    function: 0 where that is not permitted.
    """
    if not wchan or wchan == "0":
        return "unknown"
    name = wchan[:_MAX_CHARACTERS]
    return next((wait for wait, expression in _EXPRESSIONS if expression.match(name)), "other")
