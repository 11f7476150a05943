"""The section `out_of_service`: isolation and repair together, and their REST API."""
