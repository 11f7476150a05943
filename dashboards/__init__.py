"""Dashboards as code: each module makes one dashboard; `python -m dashboards` writes their JSON.

In: the queries and texts of the modules. Out: files for Grafana 11.6 and later, in English under
`json/en` and with Chinese texts under `json/zh`.
"""
