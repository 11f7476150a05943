"""What PromQL expressions read and what their results have, by the catalogue and the rules."""
