"""What the hub does about alerts: notifications, incidents, nodes out of service and back.

The way of the data: Alertmanager's messages enter at receiver.py and are on disk before they are
acknowledged; incidents.py and notify.py read them. Confirmed faults are asked of Prometheus by
isolations.py, which decides by pure functions and acts through one of the schedulers;
repairs.py starts what a site has set for the faults of a node that is out of service.
"""
