"""Access to the machine: its files, its processes, its devices, its tools."""
