"""Pictures and tables of the dashboards without Grafana: the same queries, asked of a Prometheus.

In: a dashboard's JSON, values for its variables, a time range, the address of a Prometheus. Out:
tables of every panel's result, and a plain picture. Steps and variables are those of Grafana 11.6.
"""
