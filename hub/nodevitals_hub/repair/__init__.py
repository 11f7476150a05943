"""Repairs of nodes that are out of service: jobs, objects and commands of the site."""
