"""Metrics of other exporters that the dashboards and their recording rules read, by exporter."""

from __future__ import annotations

OTHERS: dict[str, frozenset[str]] = {
    "Prometheus": frozenset(
        {
            "ALERTS",
            "ALERTS_FOR_STATE",
            "up",
            "scrape_body_size_bytes",
            "scrape_duration_seconds",
            "scrape_samples_scraped",
            "prometheus_config_last_reload_successful",
            "prometheus_notifications_dropped_total",
            "prometheus_notifications_errors_total",
            "prometheus_notifications_queue_length",
            "prometheus_notifications_sent_total",
            "prometheus_rule_evaluation_failures_total",
            "prometheus_rule_group_interval_seconds",
            "prometheus_rule_group_iterations_missed_total",
            "prometheus_rule_group_last_duration_seconds",
            "prometheus_rule_group_last_evaluation_samples",
            "prometheus_tsdb_compactions_failed_total",
            "prometheus_tsdb_head_samples_appended_total",
            "prometheus_tsdb_head_series",
            "prometheus_tsdb_wal_corruptions_total",
            "prometheus_tsdb_wal_writes_failed_total",
        }
    ),
    "Alertmanager": frozenset(
        {
            "alertmanager_alerts",
            "alertmanager_config_last_reload_successful",
            "alertmanager_notification_latency_seconds_count",
            "alertmanager_notification_latency_seconds_sum",
            "alertmanager_notifications_failed_total",
            "alertmanager_notifications_total",
            "alertmanager_silences",
        }
    ),
    "Pushgateway": frozenset({"push_time_seconds"}),
}
