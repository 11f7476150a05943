"""The node in its cluster: which pod has which device, whether the node takes pods."""
