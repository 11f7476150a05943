"""Pictures and tables of the dashboards without Grafana: the same queries, asked of a Prometheus.

In: a dashboard's JSON, values for its variables, a time range, the address of a Prometheus. Out:
tables of every panel's result, and a picture. What is emulated is Grafana 11.6.
"""
