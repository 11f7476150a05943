"""What starts collectives: mpirun over ssh, and jobs of Kubernetes."""
