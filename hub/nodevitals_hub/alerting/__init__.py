"""Messages of Alertmanager, and questions to Prometheus."""
