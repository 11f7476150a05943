"""RDMA ports: what their files in sysfs mean, and which GID of theirs to use. Pure."""
