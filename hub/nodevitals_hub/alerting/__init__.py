"""Messages of Alertmanager, and queries to Prometheus."""
