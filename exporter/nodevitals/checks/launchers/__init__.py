"""Starts collectives: by mpirun over ssh, or as Kubernetes jobs."""
